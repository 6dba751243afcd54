package view

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// packed is a text as somebody may have put it in the place of a part.
func packed(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.Bytes()
}

// A few kilobytes in the tier may stand for lists that take a gigabyte of memory: those are not decoded, nor where a short list of that name follows.
func TestLongLists(t *testing.T) {
	for _, text := range []string{`{"events":[%],"events":[]}`, `{"blocked":{"list":[%],"list":[]}}`, `{"Shadow":{"LIST":[%]}}`, `{"tops":{"requests":{"heavy":[%]}}}`, `{"keys":{"requests":{"heavy":[%]}}}`,
		`{"load":{"origins":[%]}}`, `{"answers":{"source 192.0.2.1":{"rules":[%]}}}`, `{"answers":{"try a":{"sample":[%]}}}`} {
		for n, wrong := range map[int]bool{maxListed: false, maxListed + 1: true} {
			list := strings.TrimSuffix(strings.Repeat("{},", n), ",")
			if _, err := Unpack(packed(strings.ReplaceAll(text, "%", list))); errors.Is(err, ErrLong) != wrong {
				t.Errorf("%s with %d elements: %v", text, n, err)
			}
		}
	}
}

// What no edge would show, an origin that is nothing or counts that no sum can hold, does not stop who looks.
func TestForgedLoad(t *testing.T) {
	p, err := Unpack(packed(`{"load":{"origins":[null,{"name":"a"}],"rules":{"r":null}},"tops":{"requests":{"heavy":null}},"answers":{"q":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	if short := p.Load.Short(); len(short.Origins) != 1 || short.Origins[0].Name != "a" {
		t.Errorf("%+v", short.Origins)
	}
	most := `1.7e308`
	p, err = Unpack(packed(strings.ReplaceAll(`{"load":{"received":%,"connections":-%,"denied":%,"http2":%,"answers":{"limit":%},"seconds":[[1,%]],"nodes":{"n":[[1,%]]},
		"rules":{"r":{"verdicts":{"pass":%},"blocks":%,"in_flight":%}},"origins":[{"name":"a","active":%,"answers":{"200":%},"seconds":[[1,%]]}]}}`, "%", most)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(Sum(p.Load, p.Load)); err != nil {
		t.Errorf("the sum cannot be shown: %v", err)
	}
}

// An edge that has not answered, or not at the length that a part has, is missing from what is said to a question.
func TestEdgesTo(t *testing.T) {
	quiet, long := &Part{Name: "quiet"}, &Part{Name: "long"}
	long.Answer("try a", nil)
	for _, p := range []*Part{quiet, long} {
		b, err := p.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if p, err = Unpack(b); err != nil {
			t.Fatal(err)
		}
		*map[string]**Part{"quiet": &quiet, "long": &long}[p.Name] = p
	}
	says := &Part{Name: "says"}
	says.Answer("try a", []byte(`{}`))
	p := &PoP{Parts: []Seen{{Edge{Name: "says"}, says}, {Edge{Name: "quiet"}, quiet}, {Edge{Name: "long"}, long}, {Edge{Name: "gone", Missing: "it hangs"}, nil}}}
	var got []string
	for _, e := range p.EdgesTo("try a") {
		got = append(got, fmt.Sprintf("%s %.15s", e.Name, e.Missing))
	}
	if want := "says , quiet it has not answ, long its answer is t, gone it hangs"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, ", "), want)
	}
}

// An answer that is too long to travel has a shorter one in its place; where none is short enough, the part travels without.
func TestShorterAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	said := func(n int) func() json.RawMessage {
		list := make([]uint64, n)
		for i := range list {
			list[i] = random.Uint64()
		}
		text, _ := json.Marshal(list)
		return func() json.RawMessage { return text }
	}
	for _, test := range []struct{ long, shorter, want int }{{1000, 10, 1000}, {20_000, 3000, 3000}, {20_000, 20_000, 0}} {
		p := new(Part)
		p.Answer("q", said(test.long)(), said(test.shorter))
		b, err := p.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if p, err = Unpack(b); err != nil {
			t.Fatal(err)
		}
		var got []uint64
		if err := json.Unmarshal(p.Answers["q"], &got); err != nil || len(got) != test.want {
			t.Errorf("of %d and %d: %d, %v", test.long, test.shorter, len(got), err)
		}
	}
}
