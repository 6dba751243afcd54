package judge

// PerSource holds one T for every source, zero until it is used.
type PerSource[T any] []T

// Of is that of a source. The pointer is good until the next call.
func (s *PerSource[T]) Of(source int32) *T {
	if int(source) >= len(*s) {
		s.grow(source)
	}
	return &(*s)[source]
}

func (s *PerSource[T]) grow(source int32) {
	more := make([]T, max(int(source)+1, 2*len(*s), 64))
	copy(more, *s)
	*s = more
}
