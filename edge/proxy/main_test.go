package proxy_test

import (
	"testing"

	"sluice/edge/edgetest"
)

func TestMain(m *testing.M) { edgetest.Main(m) }
