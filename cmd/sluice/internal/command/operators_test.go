package command

import (
	"os/user"
	"testing"
)

// Who says something under sudo is the one who called it; who is not root is himself, whatever the environment says.
func TestWho(t *testing.T) {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	want := u.Username
	if got := who(""); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if u.Uid == "0" {
		want = "ada"
	}
	if got := who("ada"); got != want {
		t.Errorf("under sudo: %q, want %q", got, want)
	}
}
