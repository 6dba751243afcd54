//go:build !minimal

package settings

// missing is empty: this program has all parts.
var missing map[string]string
