package notify

import "testing"

func received(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestBroadcast(t *testing.T) {
	var b Broadcast
	b.Notify() // nobody waits
	first, again := b.Next(), b.Next()
	if received(first) {
		t.Error("a notification from before Next was received")
	}
	b.Notify()
	if !received(first) || !received(again) {
		t.Error("somebody who waited was not woken")
	}
	if received(b.Next()) {
		t.Error("a notification was received twice")
	}
}

func TestKeyed(t *testing.T) {
	var k Keyed[string]
	a, stop := k.Subscribe("a")
	other, _ := k.Subscribe("a")
	b, _ := k.Subscribe("b")
	k.Notify("a")
	k.Notify("a")
	if !received(a) || !received(other) || received(b) {
		t.Error("not exactly those who subscribed to a were woken")
	}
	if received(a) {
		t.Error("two notifications that nobody had received yet are not one")
	}
	k.NotifyOthers("a", a)
	if received(a) || !received(other) {
		t.Error("not exactly the others were woken")
	}
	stop()
	k.Notify("a")
	if received(a) {
		t.Error("woken after the end of the subscription")
	}
}
