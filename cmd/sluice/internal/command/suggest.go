package command

import (
	"fmt"
	"strconv"
	"strings"

	"sluice/edge/operator"
	"sluice/edge/peaks"
)

// suggestCommand is the command that suggests a limit.
func suggestCommand() operator.Command {
	set := operator.NewFlagSet("suggest")
	refuse := set.String("refuse", "1%",
		"the `SHARE` of the sources that look honest that may be refused, 0.4% to 50%")
	c := operator.Asks(set, "RULE",
		"suggest a limit for a rule, with its confidence, from what its sources have sent",
		func(c *operator.Client, args []string) error {
			share, err := percent(*refuse)
			if err != nil {
				return operator.UsageErrorf("--refuse %w", err)
			}
			return c.Suggest(args[0], share)
		})
	c.Examples = `Examples:
  sluice suggest login                 the smallest limit under which at most 1% of the sources that look honest would have been refused
  sluice suggest login --refuse 5%     needs fewer sources
docs/operating/trying.md says how it is found, and what it rests on.

`
	return c
}

// percent reads a share such as 1%.
func percent(text string) (float64, error) {
	n, is := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
	if err != nil || !is {
		return 0, fmt.Errorf("%q: want a share in percent, such as 1%%", text)
	}
	if err := peaks.CheckShare(percent / 100); err != nil {
		return 0, fmt.Errorf("%q: want %g%% to %g%%", text, 100*peaks.LeastShare,
			100*peaks.MostShare)
	}
	return percent / 100, nil
}
