package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Azure for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// machine is a virtual machine as the API has it.
type machine struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Location string            `json:"location"`
	Tags     map[string]string `json:"tags"`
	Identity struct {
		Type string `json:"type"`
	} `json:"identity"`
	Properties struct {
		State    string    `json:"provisioningState"`
		Created  time.Time `json:"timeCreated"`
		Priority string    `json:"priority"`
		Hardware struct {
			Size string `json:"vmSize"`
		} `json:"hardwareProfile"`
		Network struct {
			Interfaces []reference `json:"networkInterfaces"`
		} `json:"networkProfile"`
		View struct {
			Statuses []status `json:"statuses"`
		} `json:"instanceView"`
	} `json:"properties"`
}

type reference struct {
	ID string `json:"id"`
}

// status is one of a machine's, such as {"PowerState/running"}, or
// {"ProvisioningState/failed/AllocationFailed"} with a message.
type status struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type networkInterface struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		Configurations []struct {
			Properties struct {
				Private string    `json:"privateIPAddress"`
				Public  reference `json:"publicIPAddress"`
			} `json:"properties"`
		} `json:"ipConfigurations"`
	} `json:"properties"`
}

type publicAddress struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		Address string `json:"ipAddress"`
	} `json:"properties"`
}

// detail is what only this driver needs to know of a machine.
type detail struct {
	subscription string // "": the one in use
	group        string
	billed       bool // it is off and costs money as if it were not
	identity     bool // it has one, by which it can give itself back
}

// machine reads what Azure says of one.
func (d driver) machine(m machine) vm.Machine {
	var power string
	var failed status
	for _, s := range m.Properties.View.Statuses {
		if p, ok := strings.CutPrefix(s.Code, "PowerState/"); ok {
			power = p
		}
		if strings.HasPrefix(strings.ToLower(s.Code), "provisioningstate/failed") {
			failed = s
		}
	}
	out := vm.Machine{
		ID: m.Name, Region: strings.ToLower(strings.ReplaceAll(m.Location, " ", "")), Type: m.Properties.Hardware.Size, Spot: m.Properties.Priority == "Spot",
		Tags: m.Tags, Created: m.Properties.Created,
		Reach: cloud.Reach{Method: "ssh", Port: 22, User: user},
	}
	out.Reach.ProxyCommand = settings(d.o.Settings()).proxy(out.Region)
	of := detail{group: groupOf(m.ID), identity: m.Identity.Type != "" && m.Identity.Type != "None"}
	if of.identity {
		out.Reach.Machine = cloud.MachinePowerOff
	}
	out.State, out.RawState = state(m.Properties.State, power)
	switch {
	case power == "stopped":
		of.billed = true
		out.Reason = "it was switched off from inside, and Azure goes on charging for it until it is stopped with: sky stop"
	case power == "deallocated" && m.Properties.State == "Failed" && failed.Message != "":
		out.Reason = failed.Message
	case out.State == vm.Pending && m.Properties.State == "Failed":
		out.Failure = failure(failed)
	}
	out.Detail = of
	return out
}

// failure is why a machine will never run.
func failure(s status) error {
	parts := strings.Split(s.Code, "/")
	e := &rest.Error{Status: http.StatusBadRequest, Message: s.Message}
	if len(parts) > 2 {
		e.Code = parts[2]
	}
	if e.Message == "" {
		e.Message = "it could not be made, and Azure does not say why"
	}
	return e
}

// powers are Azure's words for whether a machine is on. One that is stopped is off and
// still has its place, and its price.
//
// https://learn.microsoft.com/azure/virtual-machines/states-billing
var powers = map[string]vm.State{
	"starting": vm.Pending, "running": vm.Running, "stopping": vm.Stopping, "stopped": vm.Stopped, "deallocating": vm.Stopping, "deallocated": vm.Stopped,
}

// provisioning are the words for what becomes of it.
var provisioning = map[string]vm.State{
	"Creating": vm.Pending, "Updating": vm.Pending, "Failed": vm.Pending, "Canceled": vm.Pending, "Migrating": vm.Pending, "Succeeded": vm.Unknown, "Deleting": vm.Ending,
}

// state is what a machine does, and the word that says so. A word that nobody knows is
// believed no more than the other one.
func state(provisioned, power string) (vm.State, string) {
	of, known := provisioning[provisioned]
	switch {
	case !known || of == vm.Ending:
		return of, provisioned
	case power != "" && power != "unknown":
		return powers[power], power
	case of == vm.Unknown:
		return of, provisioned + ", without a power state"
	}
	return of, provisioned
}
