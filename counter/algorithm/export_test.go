package algorithm

// Coarseness is, in hits, to what a bucket's level is told when a group begins, and what drains
// within a sub-window.
func (r *Spec) Coarseness() (reported, drains float64) {
	return float64(r.bucket.step) / (1 << unit), float64(r.bucket.drain) / (1 << unit)
}
