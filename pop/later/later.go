// Package later keeps what is best done a little later, each thing under a key, and each key once.
package later

import "time"

// Most is how many things a List holds.
const Most = 1 << 14

// every is how often what is due is looked at.
const every = 5 * time.Millisecond

// A List is what has been left for later. The zero List is empty.
type List[K comparable, T any] struct {
	list []entry[K, T] // in the order in which they were left
	due  map[K]time.Time
	next time.Time
}

type entry[K comparable, T any] struct {
	key   K
	thing T
}

// Len is how many there are, dropped ones that were not due yet included.
func (l *List[K, T]) Len() int { return len(l.list) }

// Next is when some are due, if there are any.
func (l *List[K, T]) Next() time.Time { return l.next }

// Has reports whether something was left under a key.
func (l *List[K, T]) Has(key K) bool {
	_, there := l.due[key]
	return there
}

// Leave reports whether there is room. What was left before is due when it is now.
func (l *List[K, T]) Leave(key K, thing T, due time.Time) bool {
	if len(l.list) >= Most {
		return false
	}
	if l.due == nil {
		l.due = make(map[K]time.Time)
	}
	if !l.Has(key) {
		l.list = append(l.list, entry[K, T]{key, thing})
	}
	l.due[key] = due
	if len(l.list) == 1 || due.Before(l.next) {
		l.next = due
	}
	return true
}

// Hasten has what was left under a key, if anything, due now.
func (l *List[K, T]) Hasten(key K, now time.Time) {
	if l.Has(key) {
		l.due[key], l.next = now, now
	}
}

// Drop drops what was left under a key.
func (l *List[K, T]) Drop(key K) {
	if len(l.list) > 0 {
		delete(l.due, key)
	}
}

// Resume does what is due and does not have to wait, and reports whether it was time to look.
func (l *List[K, T]) Resume(now time.Time, waits func(*T) bool, do func(T)) bool {
	if len(l.list) == 0 || now.Before(l.next) {
		return false
	}
	l.next = now.Add(time.Hour)
	list := l.list
	l.list = l.list[:0]
	for i := range list {
		e := list[i]
		due, open := l.due[e.key]
		switch {
		case !open:
		case now.Before(due), waits(&e.thing):
			l.list = append(l.list, e)
			if due.Before(l.next) {
				l.next = due
			}
		default:
			delete(l.due, e.key)
			do(e.thing)
		}
	}
	clear(list[len(l.list):])
	if soon := now.Add(every); l.next.Before(soon) {
		l.next = soon
	}
	return true
}
