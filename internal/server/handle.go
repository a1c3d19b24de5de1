package server

import (
	"github.com/skypilot-go/sky/internal/server/pickle"
)

// Clients from API version handleAsObject on read a cluster's handle as JSON;
// older ones unpickle a backend object.
const handleAsObject = 49

var (
	handleClass = pickle.Global{Module: "sky.backends.cloud_vm_ray_backend", Name: "CloudVmRayResourceHandle"}
	// resourcesFactory makes a Resources from what a task file may say.
	resourcesFactory = pickle.Global{Module: "sky.resources", Name: "Resources._from_yaml_config_single"}
)

// handleVersion is the version of the handle's state: clients fill in what later
// versions added.
const handleVersion = 11

// pickledHandle turns the object form of a handle into the pickled one; nil
// stays None.
func pickledHandle(handle any) (string, error) {
	h, ok := handle.(map[string]any)
	if !ok {
		return pickle.None, nil
	}
	var ips any
	if list, ok := h["stable_internal_external_ips"].([]any); ok {
		pairs := make([]any, len(list))
		for i, p := range list {
			pair, _ := p.([]any)
			pairs[i] = pickle.Tuple(pair)
		}
		ips = pairs
	}
	nodes := h["launched_nodes"]
	if nodes == nil {
		nodes = 0
	}
	nameOnCloud := h["cluster_name_on_cloud"]
	if nameOnCloud == nil {
		nameOnCloud = h["cluster_name"]
	}
	return pickle.Base64(pickle.Object{Class: handleClass, State: pickle.Dict{
		{Key: "_version", Value: handleVersion},
		{Key: "cluster_name", Value: h["cluster_name"]},
		{Key: "cluster_name_on_cloud", Value: nameOnCloud},
		{Key: "_cluster_yaml", Value: nil},
		{Key: "launched_nodes", Value: nodes},
		{Key: "launched_resources", Value: resourcesObject(h["launched_resources"])},
		{Key: "stable_internal_external_ips", Value: ips},
		{Key: "stable_ssh_ports", Value: h["stable_ssh_ports"]},
		{Key: "docker_user", Value: h["docker_user"]},
		{Key: "cached_cluster_info", Value: nil},
		{Key: "is_grpc_enabled", Value: false},
		{Key: "skylet_ssh_tunnel", Value: nil},
	}})
}

// resourcesObject is the clients' Resources of a resources dict.
func resourcesObject(resources any) any {
	r, ok := resources.(map[string]any)
	if !ok {
		return nil
	}
	return pickle.Call{Func: resourcesFactory, Args: pickle.Tuple{r}}
}

// pickledResources is the pickle of resourcesObject.
func pickledResources(resources any) (string, error) {
	return pickle.Base64(resourcesObject(resources))
}
