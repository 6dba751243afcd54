package config

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"limit", "limits", "listen", "lists", "mitigation_timeout", "on_store_failure", "rules", "unblock", "block", "blocked", "top", "for"}
	for word, want := range map[string]string{"limt": "limit", "listn": "listen", "lsiten": "listen", "Limit": "limit", "mitigation-timeout": "mitigation_timeout",
		"mitigaton_timout": "mitigation_timeout", "blok": "block", "rule": "rules", "tpo": "top", "frobnicate": "", "x": "", "": "", "to": "", "window": "",
		"mitigation_timeout_of_the_rule_that_is_the_longest_word_of_all_words_here": ""} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
