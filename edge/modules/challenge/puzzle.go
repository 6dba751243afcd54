package challenge

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
	"time"
)

const (
	// DefaultDifficulty takes a browser some tens of milliseconds.
	DefaultDifficulty = 13
	// MaxDifficulty takes a phone a second or more. The number that is found has at most
	// numberDigits then, but for one question in 10^41.
	MaxDifficulty = 20
	// numberDigits are as many as one block of SHA-256 has room for after the question.
	numberDigits = 55 - questionText
)

// solves reports whether a number answers a question: the SHA-256 of both in one line begins with
// so many bits that are zero.
func solves(question, number []byte, difficulty int) bool {
	if len(question) != questionText || len(number) < 1 || len(number) > numberDigits {
		return false
	}
	for _, c := range number {
		if c < '0' || c > '9' {
			return false
		}
	}
	var room [questionText + numberDigits]byte
	h := sha256.Sum256(append(append(room[:0], question...), number...))
	return bits.LeadingZeros64(binary.BigEndian.Uint64(h[:8])) >= difficulty
}

// Solve finds the least number that answers a question, as the page's script does; nil: none.
func Solve(question []byte, difficulty int) []byte {
	var room [numberDigits]byte
	for n := int64(0); ; n++ {
		number := strconv.AppendInt(room[:0], n, 10)
		if len(number) > numberDigits {
			return nil
		}
		if solves(question, number, difficulty) {
			return bytes.Clone(number)
		}
	}
}

// Answer reads an answer, a question, a dot and a number, and returns the pass for it.
func (k Keys) Answer(text []byte, h Holder, now time.Time) (Pass, bool) {
	question, number, _ := bytes.Cut(text, []byte{'.'})
	q, ok := k.Question(question, h, now)
	if !ok || !solves(question, number, q.Difficulty) {
		return Pass{}, false
	}
	p := q.Pass()
	return p, now.Before(p.End)
}

func appendSeconds(b []byte, d time.Duration) []byte {
	return strconv.AppendInt(b, int64((d+time.Second-1)/time.Second), 10)
}
