package proxy

// connList is a doubly linked list through the connections themselves: moving
// one between idle and busy allocates nothing.
type connList struct {
	first, last *targetConn
	len         int
}

func (l *connList) add(c *targetConn) {
	c.list, c.prev, c.next = l, l.last, nil
	if l.last != nil {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
	l.len++
}

func (l *connList) remove(c *targetConn) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.list, c.prev, c.next = nil, nil, nil
	l.len--
}

func (l *connList) removeAll() []*targetConn {
	all := make([]*targetConn, 0, l.len)
	for c := l.first; c != nil; c = l.first {
		l.remove(c)
		all = append(all, c)
	}
	return all
}
