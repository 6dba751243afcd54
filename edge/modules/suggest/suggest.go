package suggest

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// Confidence is that of an interval.
	Confidence = 0.95
	// LeastShare and MostShare are which shares of sources may be refused: for less than the least
	// a sample has too few.
	LeastShare, MostShare = 0.004, 0.5
)

// Suggestion is the smallest limit under which at most a share of the sources that look honest
// would have been refused.
type Suggestion struct {
	Limit uint64 `json:"limit,omitempty"` // 0: not enough was seen
	// Some that it rests on were refused, so it may have to be higher
	AtLeast bool   `json:"at_least,omitempty"`
	Low     uint64 `json:"low,omitempty"` // the interval: the limit is not below
	// Nor above; 0: how far it goes up is not known, because of those that were refused
	High    uint64  `json:"high,omitempty"`
	Missing string  `json:"missing,omitempty"` // what there is not enough of
	Refuse  float64 `json:"refuse"`            // the share

	Sources uint64    `json:"sources"` // about so many, or exactly if they are all in the sample
	Sample  int       `json:"sample"`
	Honest  int       `json:"honest"`         // of the sample: that look honest
	Refused int       `json:"refused"`        // of these: whose peak is cut
	Want    int       `json:"want"`           // so many that look honest are enough
	Since   time.Time `json:"since,omitzero"` // zero: nothing was seen
	At      time.Time `json:"at"`
	Windows float64   `json:"windows"` // of the rule, in this time
}

// Want is how many sources it takes for an interval: with fewer, the largest of them may be below
// what is wanted.
func Want(refuse float64) int {
	return int(math.Ceil(math.Log((1-Confidence)/2)/math.Log1p(-refuse) - 1e-9))
}

// ShareOf is the smallest share for which so many sources are enough.
func ShareOf(honest int) float64 {
	if honest < 1 {
		return 1
	}
	return max(LeastShare,
		math.Ceil(1000*-math.Expm1(math.Log((1-Confidence)/2)/float64(honest)))/1000)
}

// CheckShare returns what is wrong with a share of sources that may be refused.
func CheckShare(refuse float64) error {
	if !(refuse >= LeastShare && refuse <= MostShare) {
		return fmt.Errorf("refuse: %g %% is not possible: want %g %% to %g %%", 100*refuse,
			100*LeastShare, 100*MostShare)
	}
	return nil
}

// Suggest is what the parts of all edges suggest for a rule with such a window.
func Suggest(parts []*Part, window time.Duration, refuse float64, now time.Time) *Suggestion {
	s := &Suggestion{Refuse: refuse, Want: Want(refuse), At: now}
	bound := uint64(math.MaxUint64)
	for _, p := range parts {
		bound = min(bound, p.Bound)
		if s.Since.IsZero() || p.Since.Before(s.Since) {
			s.Since = p.Since
		}
	}
	if len(parts) > 0 {
		s.Windows = math.Floor(10*max(0, float64(now.Sub(s.Since))/float64(window))) / 10
	}
	all := join(parts, bound)
	s.Sample, s.Sources = len(all), distinct(len(all), bound)
	// The peaks, with those that are cut as they are, and as high as can be
	var least, most []uint64
	for i := range all {
		p := &all[i]
		if !p.isHonest() {
			continue
		}
		least = append(least, max(1, p[1]))
		if p.isCut() {
			s.Refused++
			most = append(most, math.MaxUint64)
		} else {
			most = append(most, max(1, p[1]))
		}
	}
	s.Honest = len(least)
	switch {
	case s.Windows < 1:
		s.Missing = "time: less than one window of the rule was seen"
		return s
	case s.Honest < s.Want:
		s.Missing = fmt.Sprintf("sources: %d look honest, want %d", s.Honest, s.Want)
		return s
	}
	slices.Sort(least)
	slices.Sort(most)
	at := s.Honest - int(float64(s.Honest)*refuse+1e-9)
	low, high := ranks(s.Honest, refuse)
	s.Limit, s.Low = least[at-1], least[low-1]
	s.AtLeast = most[at-1] == math.MaxUint64
	if most[high-1] < math.MaxUint64 {
		s.High = most[high-1]
	}
	return s
}

// ranks are those of the order statistics, of n independent ones, that the quantile above which a
// share is lies between with Confidence, whatever the distribution (Conover, Practical
// Nonparametric Statistics, 3rd ed., 1999, section 3.2): that many of n, or fewer, are below it
// with a probability of half of what is left, and of all but that. n must be Want at least.
func ranks(n int, share float64) (low, high int) {
	const tail = (1 - Confidence) / 2
	all, _ := math.Lgamma(float64(n + 1))
	below := 0.0 // the probability that at most i are
	low = 1
	for i := range n {
		a, _ := math.Lgamma(float64(i + 1))
		b, _ := math.Lgamma(float64(n - i + 1))
		below += math.Exp(all - a - b + float64(i)*math.Log1p(-share) +
			float64(n-i)*math.Log(share))
		if below <= tail {
			low = i + 1
		}
		if below >= 1-tail-1e-12 {
			return low, i + 1
		}
	}
	return low, n
}
