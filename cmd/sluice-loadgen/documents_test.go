package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"sluice/cmd/internal/labtest"
)

// What goes wrong if a command in a document has a flag that is no more, or a make target: whoever tries it is told that there is none.
func TestCommandsInDocuments(t *testing.T) {
	if seen := labtest.Documents(t, &program, true); seen < 15 {
		t.Errorf("%d commands are found in the documents", seen)
	}
	makefile, err := os.ReadFile("../../Makefile")
	must(t, err)
	target := regexp.MustCompile("`make ([a-z0-9-]+)|(?m:^make ([a-z0-9-]+))")
	made := 0
	for file, text := range labtest.Texts(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			made++
			if !bytes.Contains(makefile, []byte("\n"+m[1]+m[2]+":")) {
				t.Errorf("%s: make %s%s: there is no such target", file, m[1], m[2])
			}
		}
	}
	if made < 15 {
		t.Errorf("%d targets are found in the documents", made)
	}
}
