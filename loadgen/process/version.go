package process

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
)

// number is a version as programs write it, in whatever sentence.
var number = regexp.MustCompile(`[0-9]+\.[0-9][0-9.]*`)

// Version is the first number with a dot in it that a program says when it is asked with a flag, to
// either of its outputs.
func Version(ctx context.Context, path, flag string) (string, error) {
	said, err := exec.CommandContext(ctx, path, flag).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("loadgen: %s %s: %w", path, flag, err)
	}
	return number.FindString(string(said)), nil
}
