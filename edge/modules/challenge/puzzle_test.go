package challenge

import "testing"

func TestPuzzle(t *testing.T) {
	text := keys.AppendQuestion(nil, asked(false), visitor)
	for _, bits := range []int{1, 4, 8, 12} {
		number := Solve(text, bits)
		if !solves(text, number, bits) {
			t.Errorf("%d bits: %s is no answer", bits, number)
		}
	}
	eight := Solve(text, 8)
	for name, number := range map[string]string{
		"none": "", "no digits": "12a", "a sign": "-1", "a space": string(eight) + " ",
		"too long": "123456789012345678901234567890",
	} {
		if solves(text, []byte(number), 0) {
			t.Errorf("%s: %q is an answer", name, number)
		}
	}
	if solves(text[1:], eight, 0) {
		t.Error("what is no question has an answer")
	}
	if testing.AllocsPerRun(100, func() { solves(text, eight, 8) }) != 0 {
		t.Error("an answer allocates")
	}
}
