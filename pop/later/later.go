// Package later keeps what is best done a little later, each thing under a key, and each key once.
package later

import "time"

// Most is how many things a List holds.
const Most = 1 << 14

// every is how often what is due is looked at.
const every = 5 * time.Millisecond

// A List is what has been left for later. The zero List is empty.
type List[K comparable, T any] struct {
	list []K // in the order in which they were left
	left map[K]entry[T]
	next time.Time
}

type entry[T any] struct {
	thing T
	due   time.Time
}

// Len is how many there are, dropped ones that were not due yet included.
func (l *List[K, T]) Len() int { return len(l.list) }

// Next is when some are due, if there are any.
func (l *List[K, T]) Next() time.Time { return l.next }

// Has reports whether something was left under a key.
func (l *List[K, T]) Has(key K) bool {
	_, there := l.left[key]
	return there
}

// Leave reports whether there is room. What was left before is due when it is now.
func (l *List[K, T]) Leave(key K, thing T, due time.Time) bool {
	if len(l.list) >= Most {
		return false
	}
	if l.left == nil {
		l.left = make(map[K]entry[T])
	}
	e, there := l.left[key]
	if !there {
		l.list = append(l.list, key)
		e.thing = thing
	}
	e.due = due
	l.left[key] = e
	if len(l.list) == 1 || due.Before(l.next) {
		l.next = due
	}
	return true
}

// Drop drops what was left under a key.
func (l *List[K, T]) Drop(key K) {
	if len(l.list) > 0 {
		delete(l.left, key)
	}
}

// Resume does what is due, and reports whether it was time to look.
func (l *List[K, T]) Resume(now time.Time, do func(T)) bool {
	if len(l.list) == 0 || now.Before(l.next) {
		return false
	}
	l.next = now.Add(time.Hour)
	list := l.list
	l.list = l.list[:0]
	for _, key := range list {
		e, open := l.left[key]
		switch {
		case !open:
		case now.Before(e.due):
			l.list = append(l.list, key)
			if e.due.Before(l.next) {
				l.next = e.due
			}
		default:
			delete(l.left, key)
			do(e.thing)
		}
	}
	clear(list[len(l.list):])
	if soon := now.Add(every); l.next.Before(soon) {
		l.next = soon
	}
	return true
}
