package accesslog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// tornFile takes so many bytes, and then no more until there is room again.
type tornFile struct {
	strings.Builder
	room int
}

func (f *tornFile) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.room -= n
	f.Builder.Write(p[:n])
	if n < len(p) {
		return n, errors.New("no space left")
	}
	return n, nil
}

func (*tornFile) Close() error { return nil }

// Every line that is not whole in the file is counted as lost, and spoils no other line.
func TestAccessLogOnAFullDisk(t *testing.T) {
	f := func(rooms []int, want string, lost uint64) {
		t.Helper()
		out := &tornFile{}
		w := batch{out: out}
		var got uint64
		for i, room := range rooms {
			out.room = room
			w.text = append(w.text, fmt.Sprintf("line %da\nline %db\n", i, i)...)
			lost, err := w.flush()
			if got += lost; lost > 0 != (err != nil) {
				t.Errorf("%v: %d lost, and why: %v", rooms, lost, err)
			}
		}
		if out.String() != want || got != lost {
			t.Errorf("%v: %q, %d lost, want %q, %d", rooms, out, got, want, lost)
		}
	}
	f([]int{99, 99}, "line 0a\nline 0b\nline 1a\nline 1b\n", 0)
	f([]int{0, 99}, "line 1a\nline 1b\n", 2)
	f([]int{8, 99}, "line 0a\nline 1a\nline 1b\n", 1)
	f([]int{10, 99}, "line 0a\nli\nline 1a\nline 1b\n", 1)
	f([]int{3, 0, 99}, "lin\nline 2a\nline 2b\n", 4)
	f([]int{3, 1, 99}, "lin\nline 2a\nline 2b\n", 4)
}
