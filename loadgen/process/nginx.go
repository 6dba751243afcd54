package process

import (
	"fmt"
	"strings"
)

// NginxFolders has an nginx keep what it writes below a folder, in lines of its http block: else it
// wants folders of the machine's.
func NginxFolders(dir string) string {
	var b strings.Builder
	for _, t := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&b, "  %s_temp_path %s/%s;\n", t, dir, t)
	}
	return b.String()
}
