package vspherefake

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// effects are what calls do.
var effects = map[string]cloudtest.Effect{
	"CloneVM_Task": cloudtest.Creating, "PowerOnVM_Task": cloudtest.Starting, "PowerOffVM_Task": cloudtest.Stopping, "ShutdownGuest": cloudtest.Stopping, "Destroy_Task": cloudtest.Terminating,
}

// RoundTrip answers a call without a network, so that time may be virtual.
func (f *Fake) RoundTrip(r *http.Request) (*http.Response, error) {
	return fakehttp.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.process.Serve(f, w, r) }), r)
}

func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f.begin()
	f.mu.Lock()
	if hang := f.trouble.hang; hang != nil {
		f.mu.Unlock()
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	defer f.mu.Unlock()
	switch {
	case f.trouble.cut:
		panic(http.ErrAbortHandler)
	case f.trouble.throttle:
		http.Error(w, "local_rate_limited", http.StatusTooManyRequests)
		return
	}
	answer := httptest.NewRecorder()
	method, lost := f.answer(answer, r, body)
	f.calls = append(f.calls, method)
	if lost {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// answer does what a call says; lost: nobody hears of it.
func (f *Fake) answer(w *httptest.ResponseRecorder, r *http.Request, body []byte) (name string, lost bool) {
	call, err := simulator.UnmarshalBody(types.TypeFunc(), body)
	if err == nil {
		err = inOrder(call, body)
	}
	if err != nil {
		fault(w, "InvalidRequest", err.Error())
		return "", false
	}
	name = call.Name
	cookie := r.Header.Get("Cookie")
	switch effect := effects[name]; {
	case name == "RetrieveServiceContent":
	case name == "Login":
		if login := call.Body.(*types.Login); f.trouble.refuse || login.UserName != User || login.Password != Password {
			fault(w, "InvalidLogin", "Cannot complete login due to an incorrect user name or password.")
			return name, false
		}
	case !f.sessions[cookie]:
		fault(w, "NotAuthenticated", "The session is not authenticated.")
		return name, false
	case f.trouble.refusal[name] != "":
		fault(w, f.trouble.refusal[name], "The call was refused.")
		return name, false
	case effect != "" && f.trouble.forbid:
		fault(w, "NoPermission", "Permission to perform this operation was denied.")
		return name, false
	case effect != "" && effect == f.trouble.odd:
		fault(w, cloudtest.OddCode, "Dust everywhere.")
		return name, false
	case effect == cloudtest.Creating && f.trouble.lack:
		f.trouble.lacking++
		fault(w, "ManagedObjectNotFound", "The object has already been deleted or has not been completely created")
		return name, false
	case effect != "" && f.trouble.lose[effect] > 0:
		f.trouble.lose[effect]--
		lost = true
	}
	f.settle()
	if name == "RetrievePropertiesEx" {
		f.list(w, r, body, call)
	} else if !f.own(w, call) {
		f.simulate(w, r, body)
		f.after(w, call)
	}
	return name, lost
}

// simulate lets the simulator answer.
func (f *Fake) simulate(w http.ResponseWriter, r *http.Request, body []byte) {
	in := r.Clone(r.Context())
	in.Body = io.NopCloser(bytes.NewReader(body))
	f.mux.ServeHTTP(w, in)
}

// list answers a question about properties. New VMs may be missing in some lists.
func (f *Fake) list(w *httptest.ResponseRecorder, r *http.Request, body []byte, call *simulator.Method) {
	in := call.Body.(*types.RetrievePropertiesEx)
	whole := len(in.SpecSet) > 0 && len(in.SpecSet[0].ObjectSet) > 0 && in.SpecSet[0].ObjectSet[0].Obj.Type == "Folder" && in.SpecSet[0].PropSet[0].Type == "VirtualMachine"
	folder := simulator.Map.Get(datacenter().VmFolder).(*simulator.Folder)
	was := slices.Clone(folder.ChildEntity)
	for _, g := range f.guests {
		if whole && g.ending != nil && g.lingers == 0 {
			f.destroy(g)
			was = slices.Clone(folder.ChildEntity)
		} else if whole {
			g.lingers--
		}
		if whole && g.hidden > 0 {
			g.hidden--
			folder.ChildEntity = slices.DeleteFunc(folder.ChildEntity, func(to types.ManagedObjectReference) bool { return to == g.vm.Self })
		}
	}
	f.simulate(w, r, body)
	folder.ChildEntity = was
}

// own does calls that the simulator has none of, or does too simply; false: it is not one of
// those.
func (f *Fake) own(w http.ResponseWriter, call *simulator.Method) bool {
	g := f.guest(call.This)
	v, _ := simulator.Map.Get(call.This).(*simulator.VirtualMachine)
	if why := f.trouble.taskRefusal[call.Name]; why != nil && v != nil {
		begun(w, call.Name, failed(v, call.Name, why))
		return true
	}
	switch call.Name {
	case "CloneVM_Task":
		name := call.Body.(*types.CloneVM_Task).Name
		if slices.ContainsFunc(machines(), func(v *simulator.VirtualMachine) bool { return v.Name == name }) {
			begun(w, call.Name, failed(v, call.Name, &types.DuplicateName{Name: name}))
			return true
		}
	case "PowerOnVM_Task":
		if g == nil || poweredOn(v) {
			return false
		}
		h := simulator.Map.Get(*v.Runtime.Host).(*simulator.HostSystem)
		if int(h.Summary.Hardware.MemorySize>>20)-int(h.Summary.QuickStats.OverallMemoryUsage) < int(v.Config.Hardware.MemoryMB) {
			begun(w, call.Name, failed(v, call.Name, &types.InsufficientMemoryResourcesFault{}))
			return true
		}
	case "Destroy_Task":
		switch {
		case g == nil || g.ending == nil && f.trouble.linger == 0 || poweredOn(v):
			return false
		case g.ending != nil:
			fault(w, cloudtest.OddCode, "Dust everywhere.")
			return true
		}
		g.ending, g.lingers = simulator.CreateTask(v, "destroy", nil), f.trouble.linger
		begun(w, call.Name, g.ending)
		return true
	case "ShutdownGuest":
		switch {
		case g == nil || !poweredOn(v):
			return false
		case !g.on || f.trouble.tools:
			fault(w, "ToolsUnavailable", "Cannot complete operation because VMware Tools is not running in this virtual machine.")
			return true
		}
		f.halt(g, nil)
		fmt.Fprintf(w, envelope, `<ShutdownGuestResponse xmlns="urn:vim25"></ShutdownGuestResponse>`)
		return true
	case "PowerOffVM_Task":
		if g == nil || !poweredOn(v) {
			return false
		}
		task := simulator.CreateTask(v, "powerOff", nil)
		f.halt(g, task)
		begun(w, call.Name, task)
		return true
	}
	return false
}

// after does what a call does besides what the simulator did.
func (f *Fake) after(w *httptest.ResponseRecorder, call *simulator.Method) {
	g := f.guest(call.This)
	switch call.Name {
	case "Login":
		for _, c := range w.Result().Cookies() {
			f.sessions[c.Name+"="+c.Value] = true
		}
	case "PowerOnVM_Task":
		if g != nil && poweredOn(g.vm) && !g.on {
			g.bootAt = time.Now().Add(f.boot)
		}
	case "Destroy_Task":
		if g != nil && simulator.Map.Get(call.This) == nil {
			g.gone = true
		}
	case "CloneVM_Task":
		in := call.Body.(*types.CloneVM_Task)
		for _, v := range machines() {
			if v.Name != in.Name {
				continue
			}
			now := time.Now()
			was, is := simulator.Map.Get(*v.Runtime.Host).(*simulator.HostSystem), simulator.Map.Get(*in.Spec.Location.Host).(*simulator.HostSystem)
			simulator.RemoveReference(&was.Vm, v.Self)
			is.Vm = append(is.Vm, v.Self)
			v.Runtime.Host, v.Summary.Runtime.Host, v.ResourcePool = in.Spec.Location.Host, in.Spec.Location.Host, in.Spec.Location.Pool
			v.Config.CreateDate = &now
			if c := in.Spec.Config; c != nil {
				v.Config.Annotation, v.Config.ExtraConfig = c.Annotation, c.ExtraConfig
				v.Config.Hardware.NumCPU, v.Config.Hardware.MemoryMB = c.NumCPUs, int32(c.MemoryMB)
				f.devices(v, c.DeviceChange)
			}
			f.guests = append(f.guests, &guest{name: v.Name, vm: v, spec: in.Spec, hidden: f.trouble.hideNew})
		}
	}
}

// devices gives a VM the GPUs that were asked for, of those that nobody has.
func (f *Fake) devices(v *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) {
	taken := map[string]bool{}
	for _, other := range machines() {
		for _, d := range other.Config.Hardware.Device {
			if b, ok := d.GetVirtualDevice().Backing.(*types.VirtualPCIPassthroughDeviceBackingInfo); ok {
				taken[b.Id] = true
			}
		}
	}
	h := simulator.Map.Get(*v.Runtime.Host).(*simulator.HostSystem)
	for _, c := range changes {
		want, is := c.GetVirtualDeviceConfigSpec().Device.GetVirtualDevice().Backing.(*dynamicBacking)
		for _, have := range h.Hardware.PciDevice {
			if is && !taken[have.Id] && have.VendorId == int16(want.AllowedDevice[0].VendorID) {
				taken[have.Id] = true
				v.Config.Hardware.Device = append(v.Config.Hardware.Device, &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Key: int32(13000 + len(taken)), Backing: &types.VirtualPCIPassthroughDeviceBackingInfo{Id: have.Id}}})
				break
			}
		}
	}
}

// guest is the VM of a call.
func (f *Fake) guest(of types.ManagedObjectReference) *guest {
	for _, g := range f.guests {
		if !g.gone && g.vm.Self == of {
			return g
		}
	}
	return nil
}
