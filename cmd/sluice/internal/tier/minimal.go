//go:build minimal

package tier

import (
	"errors"

	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/pop/secret"
)

// keepRulesInEtcd is reached by no start: a minimal program refuses a configuration with etcd.
func (s *Shared) keepRulesInEtcd(*config.Config, secret.Secret, uint64, *events.Log) error {
	return errors.New("this program was built without etcd")
}
