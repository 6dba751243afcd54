package main

import (
	"sluice/pop"
)

// parseFlaps reads changes of routes as --flap gives them.
func parseFlaps(flaps []string, pops int) ([]pop.Route, error) {
	var routes []pop.Route
	for _, text := range flaps {
		r, err := pop.ParseRoute(text)
		if err != nil {
			return nil, usagef("--flap: %v", err)
		}
		routes = append(routes, r)
	}
	if _, err := pop.NewAffinity(pops, routes); err != nil {
		return nil, usagef("--flap: %v", err)
	}
	return routes, nil
}

// flapLines is how reports show them.
func flapLines(flaps []string) (lines []string) {
	for _, f := range flaps {
		lines = append(lines, "route changes: "+f)
	}
	return lines
}
