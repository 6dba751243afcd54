package worst

import (
	"os"
	"testing"
	"time"
)

func TestX(t *testing.T) {
	s := time.Now()
	l, err := Search(Options{Seed: 1, Rounds: 100, Timeout: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	Write(os.Stdout, l)
	t.Log(time.Since(s))
}
