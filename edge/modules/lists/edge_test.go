package lists_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/edge/modules/lists"
)

// Named lists refuse, spare and choose rules, and one that changes under traffic does so at once. Rules go on counting.
func TestNamedLists(t *testing.T) {
	dir, module := t.TempDir(), lists.Module(false)
	has := func(name, text string) {
		t.Helper()
		edgetest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		module.Reload(t.Context(), nil)()
	}
	has("bad", "127.0.0.2\n")
	has("staff", "127.0.0.3 # the office\n")
	has("partners", "127.0.0.4/31\n")
	var yaml string
	for _, name := range []string{"bad", "staff", "partners"} {
		yaml += "- {name: " + name + ", file: " + filepath.Join(dir, name) + "}\n"
	}
	yaml = "lists:\n" + yaml + "deny: ['list:bad', 127.0.0.9]\nallow: ['list:staff']\nrules:\n- {name: partners, limit: 3, mitigation_timeout: 0s, match: {lists: [partners]}}\n- {name: others, limit: 1, mitigation_timeout: 0s, match: {not: {lists: [partners]}}}\n"
	e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), yaml, module)
	served := func(what string, source byte, want string) {
		t.Helper()
		for _, c := range want {
			if got := e.Served(edgetest.Local(source)); got != (c == '+') {
				t.Errorf("%s: 127.0.0.%d is served: %v, want of its requests %s", what, source, got, want)
			}
		}
	}
	served("denied by a list", 2, "--")
	served("denied by a prefix beside it", 9, "-")
	served("allowed by a list", 3, "+++++")
	served("a partner", 4, "++")
	served("somebody else", 6, "+-")

	has("partners", "127.0.0.4\n127.0.0.7\n") // 127.0.0.5 goes, 127.0.0.7 comes
	served("still a partner, whose requests count", 4, "+-")
	served("no partner any more", 5, "+-")
	served("a partner now", 7, "+++-")
	has("bad", "127.0.0.7\n")
	has("staff", "127.0.0.2\n")
	served("denied now", 7, "-")
	served("allowed now", 2, "+++")
	has("bad", "127.0.0.7\neverybody\n")
	served("denied while the list is wrong", 7, "-")

	c := *e.Config()
	wrong := slices.Clone(*config.SettingsOf[lists.Settings](&c, "lists"))
	wrong[0].File += ".none"
	c.Settings = map[string]any{"lists": &wrong}
	if err := e.Apply(&c); err == nil || !strings.HasPrefix(err.Error(), "lists: bad: open "+string(wrong[0].File)) {
		t.Error(err)
	}
	served("denied after a wrong change", 7, "-")
}
