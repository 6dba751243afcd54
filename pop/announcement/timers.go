package announcement

import "time"

// maxTimers is how many things timers hold.
const maxTimers = 1 << 14

// every is how often what is due is looked at.
const every = 5 * time.Millisecond

// timers keep what is best done a little later, each thing under a key, and each key once. The zero
// value is empty.
type timers[K comparable, T any] struct {
	list []K // in the order in which they were left
	left map[K]timer[T]
	due  time.Time
}

type timer[T any] struct {
	thing T
	due   time.Time
}

// len is how many there are, dropped ones that were not due yet included.
func (l *timers[K, T]) len() int { return len(l.list) }

// next is when some are due, if there are any.
func (l *timers[K, T]) next() time.Time { return l.due }

// has reports whether something was left under a key.
func (l *timers[K, T]) has(key K) bool {
	_, there := l.left[key]
	return there
}

// leave reports whether there is room. What was left before is due when it is now.
func (l *timers[K, T]) leave(key K, thing T, due time.Time) bool {
	if len(l.list) >= maxTimers {
		return false
	}
	if l.left == nil {
		l.left = make(map[K]timer[T])
	}
	e, there := l.left[key]
	if !there {
		l.list = append(l.list, key)
		e.thing = thing
	}
	e.due = due
	l.left[key] = e
	if len(l.list) == 1 || due.Before(l.due) {
		l.due = due
	}
	return true
}

// drop drops what was left under a key.
func (l *timers[K, T]) drop(key K) {
	if len(l.list) > 0 {
		delete(l.left, key)
	}
}

// resume does what is due, and reports whether it was time to look.
func (l *timers[K, T]) resume(now time.Time, do func(T)) bool {
	if len(l.list) == 0 || now.Before(l.due) {
		return false
	}
	l.due = now.Add(time.Hour)
	list := l.list
	l.list = l.list[:0]
	for _, key := range list {
		e, open := l.left[key]
		switch {
		case !open:
		case now.Before(e.due):
			l.list = append(l.list, key)
			if e.due.Before(l.due) {
				l.due = e.due
			}
		default:
			delete(l.left, key)
			do(e.thing)
		}
	}
	clear(list[len(l.list):])
	if soon := now.Add(every); l.due.Before(soon) {
		l.due = soon
	}
	return true
}
