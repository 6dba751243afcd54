package main

import (
	"testing"

	"sluice/cmd/internal/labtest"
)

func TestCommandsInDocuments(t *testing.T) {
	if seen := labtest.Documents(t, &program, false); seen < 15 {
		t.Errorf("%d commands are found in the documents", seen)
	}
}
