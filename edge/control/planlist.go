package control

import (
	"context"
	"time"

	"sluice/edge/rules"
)

// ListedClient is a client of whom operators said something, and what it has used.
type ListedClient struct {
	Key string `json:"key"` // "#" and a digest where keys are secret
	// Its first characters, where keys are secret and a rule shows them
	KeyStart string `json:"key_start,omitempty"`
	// "": plans.key; or nobody can tell, as Rules says
	By     string  `json:"by,omitempty"`
	Plan   string  `json:"plan"`
	Quotas []Quota `json:"quotas"`
	// The tier has answered; else Rules are what this edge alone knows
	Asked bool `json:"asked"`
	// None where keys are secret and there are plans.also: the store's digest does not tell what
	// the client is known by
	Rules []Usage `json:"rules"`
}

// ListClients tells of clients as the store of the plans has them: what is in force on this edge,
// and, where the tier answers until ctx is done, what they have used at all edges. What no edge has
// written is passed over.
func (c *Admin) ListClients(ctx context.Context, stored []string) ([]ListedClient, error) {
	in := c.with.View()
	if in.PlansConfig.Key == "" {
		return nil, ErrNoPlans
	}
	keys, err := rules.NewClientKeys(in.PlansConfig, c.with.Secret)
	if err != nil {
		return nil, err
	}
	type asked struct {
		client  rules.StoreKey
		under   []where
		plan    []string
		replies []<-chan struct{}
	}
	list, all, now := []ListedClient{}, []asked{}, time.Now()
	for _, text := range stored { // all are asked for before the first answer is waited for
		s, ok := keys.Read(text)
		known := in.Plans.Of(s.Known)
		if !ok || known == nil {
			continue
		}
		one, ask := ListedClient{Key: s.Form, Plan: planOf(&in, known), Quotas: quotasOf(known,
			now), Rules: []Usage{}}, asked{client: s}
		if s.By != nil {
			ask.under, ask.plan = counted(&in, s.By, s.Client, known)
			ask.replies, one.Asked = c.startAsking(ctx, ask.under, s.Client)
			if s.By.String() != keys[0].String() {
				one.By = s.By.String()
			}
		}
		switch {
		case s.By == nil:
			one.Key = s.Known.String()
		case s.Form == "" || in.PlansConfig.SecretKeys:
			one.Key = s.Client.String()
			if c.with.Keys != nil {
				one.KeyStart = c.with.Keys.Start(s.By.String(), s.Client).String()
			}
		}
		list, all = append(list, one), append(all, ask)
	}
	for i := range all {
		list[i].Asked = list[i].Asked && answered(ctx, all[i].replies)
		list[i].Rules = c.usage(all[i].under, all[i].plan, all[i].client.Client, time.Now())
	}
	return list, nil
}
