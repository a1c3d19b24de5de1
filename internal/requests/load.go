package requests

// Load is how much work a server has.
type Load struct {
	Running int // requests whose functions run here
	Slots   int // long ones among them, each of which holds a slot
	Waiting int // long ones that wait for a slot
}

// Load returns how much work this server has now.
func (e *Engine) Load() Load {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Load{Running: len(e.runs), Slots: e.longs, Waiting: e.queue.len()}
}
