package loadgen

// perSource holds one T for every source, zero until it is used.
type perSource[T any] []T

// of is that of a source. The pointer is good until the next call.
func (s *perSource[T]) of(source int32) *T {
	if int(source) >= len(*s) {
		s.grow(source)
	}
	return &(*s)[source]
}

func (s *perSource[T]) grow(source int32) {
	more := make([]T, max(int(source)+1, 2*len(*s), 64))
	copy(more, *s)
	*s = more
}
