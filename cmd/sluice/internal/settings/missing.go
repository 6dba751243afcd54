//go:build minimal

package settings

// missing is what a minimal program is built without, by the setting that needs it.
var missing = map[string]string{
	"plans.store": "drivers of databases",
}
