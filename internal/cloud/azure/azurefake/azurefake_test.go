package azurefake_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/azure/azurefake"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

type dict = map[string]any

// client calls the fake as a program does.
type client struct {
	*testing.T
	*azurefake.Fake
	token string
}

// virtual runs a test in virtual time, over a new subscription.
func virtual(t *testing.T, test func(c client)) {
	synctest.Test(t, func(t *testing.T) {
		f := azurefake.New()
		test(client{t, f, f.Token()})
	})
}

const (
	root  = "/subscriptions/" + azurefake.Subscription
	group = root + "/resourceGroups/rg"
	net   = group + "/providers/Microsoft.Network"
	comp  = group + "/providers/Microsoft.Compute"
)

// version is a good one for a path.
func version(path string) string {
	path = strings.ToLower(path)
	for part, v := range map[string]string{
		"/providers/microsoft.network": "2023-09-01", "/microsoft.compute/disks": "2023-10-02", "/microsoft.compute/skus": "2021-07-01", "/microsoft.managedidentity": "2023-01-31", "/microsoft.authorization": "2022-04-01", "/communitygalleries/": "2022-03-03",
	} {
		if strings.Contains(path, part) {
			return v
		}
	}
	switch {
	case strings.Contains(path, "/microsoft.compute/"):
		return "2024-07-01"
	case strings.Contains(path, "/resourcegroups") || strings.Contains(path, "/resources") || strings.Contains(path, "/providers"):
		return "2021-04-01"
	}
	return "2022-12-01"
}

func (c client) send(method, link string, header map[string]string, body string) (int, dict, http.Header) {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, link, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := c.Fake.RoundTrip(req)
	if err != nil {
		return 0, nil, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	var out dict
	_ = json.Unmarshal(text, &out)
	return resp.StatusCode, out, resp.Header
}

// call sends JSON to a path, with a good api-version if it has none.
func (c client) call(method, path string, body any) (int, dict, http.Header) {
	c.Helper()
	text := ""
	if body != nil {
		b, _ := json.Marshal(body)
		text = string(b)
	}
	if !strings.Contains(path, "api-version") {
		sign := "?"
		if strings.Contains(path, "?") {
			sign = "&"
		}
		path += sign + "api-version=" + version(path)
	}
	if strings.HasPrefix(path, "/") {
		path = "https://management.azure.com" + path
	}
	return c.send(method, path, nil, text)
}

func (c client) get(path string) dict {
	c.Helper()
	status, out, _ := c.call("GET", path, nil)
	if status != 200 {
		c.Fatalf("GET %s: %d %v", path, status, out)
	}
	return out
}

// no wants a refusal.
func (c client) no(method, path string, body any, status int, code, words string) {
	c.Helper()
	got, out, _ := c.call(method, path, body)
	e, _ := out["error"].(dict)
	if got != status || e["code"] != code || !strings.Contains(fmt.Sprint(e["message"]), words) {
		c.Errorf("%s %s: %d %v, not %d %s %q", method, path, got, out, status, code, words)
	}
}

// begin makes a call that is accepted, and returns how to hear of its end.
func (c client) begin(method, path string, body any) http.Header {
	c.Helper()
	status, out, h := c.call(method, path, body)
	if status != 200 && status != 201 && status != 202 && status != 204 {
		c.Fatalf("%s %s: %d %v", method, path, status, out)
	}
	return h
}

// end waits as clients do: by Azure-AsyncOperation, else by Location.
func (c client) end(h http.Header) (failed string) {
	c.Helper()
	at, location := h.Get("Azure-AsyncOperation"), h.Get("Location")
	if at == "" && location == "" {
		return ""
	}
	for range 1000 {
		after, err := strconv.Atoi(h.Get("Retry-After"))
		if err != nil {
			c.Fatalf("there is no Retry-After in %v", h)
		}
		time.Sleep(time.Duration(after) * time.Second)
		link := at
		if at == "" {
			link = location
		}
		status, out, next := c.call("GET", link, nil)
		switch {
		case at == "" && status == 202, out["status"] == "InProgress":
			h = next
			continue
		case at == "", out["status"] == "Succeeded":
			return ""
		}
		return out["error"].(dict)["code"].(string)
	}
	c.Fatal("it never ends")
	return ""
}

func (c client) do(method, path string, body any) {
	c.Helper()
	if failed := c.end(c.begin(method, path, body)); failed != "" {
		c.Fatalf("%s %s: %s", method, path, failed)
	}
}

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFake"

func (c client) makeGroup() {
	c.Helper()
	c.do("PUT", group, dict{"location": "eastus", "tags": dict{"sky": "1"}})
}

// network makes what a machine needs besides itself.
func (c client) network(names ...string) {
	c.Helper()
	c.makeGroup()
	c.do("PUT", net+"/networkSecurityGroups/nsg", dict{"location": "eastus", "properties": dict{"securityRules": []any{rule("ssh", 100, "22")}}})
	c.do("PUT", net+"/virtualNetworks/vnet", dict{"location": "eastus", "properties": dict{
		"addressSpace": dict{"addressPrefixes": []any{"10.1.0.0/16"}}, "subnets": []any{dict{"name": "s", "properties": dict{"addressPrefix": "10.1.0.0/16", "networkSecurityGroup": dict{"id": net + "/networkSecurityGroups/nsg"}}}},
	}})
	for _, name := range names {
		c.do("PUT", net+"/publicIPAddresses/"+name+"-ip", dict{"location": "eastus", "sku": dict{"name": "Standard"}, "properties": dict{"publicIPAllocationMethod": "Static"}})
		c.do("PUT", net+"/networkInterfaces/"+name+"-nic", nic(name))
	}
}

func rule(name string, priority int, port string) dict {
	return dict{"name": name, "properties": dict{"priority": priority, "direction": "Inbound", "access": "Allow", "protocol": "Tcp", "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": port}}
}

func nic(name string) dict {
	return dict{"location": "eastus", "properties": dict{"ipConfigurations": []any{dict{"name": "ipconfig", "properties": dict{
		"subnet": dict{"id": net + "/virtualNetworks/vnet/subnets/s"}, "publicIPAddress": dict{"id": net + "/publicIPAddresses/" + name + "-ip", "properties": dict{"deleteOption": "Delete"}},
	}}}}}
}

// machine is the smallest body, with changes at paths such as "properties.priority".
func machine(name string, changes ...any) dict {
	body := dict{"location": "eastus", "tags": dict{"cluster": "one"}, "properties": dict{
		"hardwareProfile": dict{"vmSize": "Standard_D4s_v5"},
		"storageProfile": dict{
			"imageReference": dict{"publisher": "Canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts-gen2", "version": "latest"},
			"osDisk":         dict{"createOption": "FromImage", "deleteOption": "Delete", "diskSizeGB": 64, "managedDisk": dict{"storageAccountType": "Premium_LRS"}},
		},
		"osProfile":      dict{"computerName": name, "adminUsername": "azureuser", "customData": "I2Nsb3VkLWNvbmZpZw==", "linuxConfiguration": dict{"disablePasswordAuthentication": true, "ssh": dict{"publicKeys": []any{dict{"path": "/home/azureuser/.ssh/authorized_keys", "keyData": key}}}}},
		"networkProfile": dict{"networkInterfaces": []any{dict{"id": net + "/networkInterfaces/" + name + "-nic", "properties": dict{"primary": true, "deleteOption": "Delete"}}}},
	}}
	for n := 0; n < len(changes); n += 2 {
		at := body
		parts := strings.Split(changes[n].(string), ".")
		for _, p := range parts[:len(parts)-1] {
			at = at[p].(dict)
		}
		if at[parts[len(parts)-1]] = changes[n+1]; changes[n+1] == nil {
			delete(at, parts[len(parts)-1])
		}
	}
	return body
}

// power is the state that the instance view tells.
func (c client) power(name string) (provisioning, power string) {
	c.Helper()
	for _, s := range c.get(comp + "/virtualMachines/" + name + "/instanceView")["statuses"].([]any) {
		code := s.(dict)["code"].(string)
		if p, ok := strings.CutPrefix(code, "PowerState/"); ok {
			power = p
		} else if p, ok := strings.CutPrefix(code, "ProvisioningState/"); ok {
			provisioning = p
		}
	}
	return provisioning, power
}

func (c client) wants(name, provisioning, power string) {
	c.Helper()
	if a, b := c.power(name); a != provisioning || b != power {
		c.Errorf("%s is %q and %q, not %q and %q", name, a, b, provisioning, power)
	}
}

func TestMachineLives(t *testing.T) {
	virtual(t, func(c client) {
		c.network("one")
		c.Slow(40 * time.Second)
		h := c.begin("PUT", comp+"/virtualMachines/one", machine("one"))
		if h.Get("Azure-AsyncOperation") == "" {
			t.Fatalf("the headers are %v", h)
		}
		c.wants("one", "creating", "")
		time.Sleep(21 * time.Second)
		c.wants("one", "creating", "starting")
		if vm := c.get(comp + "/virtualMachines/one"); vm["properties"].(dict)["provisioningState"] != "Creating" || vm["properties"].(dict)["instanceView"] != nil {
			t.Errorf("it is %v", vm)
		}
		if failed := c.end(h); failed != "" {
			t.Fatal(failed)
		}
		c.wants("one", "succeeded", "running")
		vm := c.get(comp + "/virtualMachines/one?$expand=instanceView")
		p := vm["properties"].(dict)
		if p["provisioningState"] != "Succeeded" || p["vmId"] == nil || p["instanceView"] == nil || p["osProfile"].(dict)["customData"] != nil || vm["type"] != "Microsoft.Compute/virtualMachines" || !strings.HasSuffix(vm["id"].(string), "/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/one") {
			t.Errorf("running it is %v", vm)
		}
		if again := c.get(strings.Replace(comp, "resourceGroups/rg", "RESOURCEGROUPS/RG", 1) + "/VIRTUALMACHINES/ONE"); again["id"] != vm["id"] {
			t.Errorf("in other letters it is %v", again["id"])
		}
		n := c.get(net + "/networkInterfaces/one-nic")["properties"].(dict)
		config := n["ipConfigurations"].([]any)[0].(dict)["properties"].(dict)
		if !strings.HasPrefix(fmt.Sprint(config["privateIPAddress"]), "10.1.") || n["virtualMachine"].(dict)["id"] != vm["id"] {
			t.Errorf("its network interface is %v", n)
		}
		ip := c.get(net + "/publicIPAddresses/one-ip")["properties"].(dict)
		if ip["ipAddress"] == nil || !strings.Contains(fmt.Sprint(ip["ipConfiguration"]), "one-nic") {
			t.Errorf("its address is %v", ip)
		}
		c.no("DELETE", net+"/networkInterfaces/one-nic", nil, 400, "NicInUse", "is used by existing resource")
		c.no("DELETE", net+"/publicIPAddresses/one-ip", nil, 400, "PublicIPAddressCannotBeDeleted", "still allocated")
		c.no("DELETE", net+"/virtualNetworks/vnet/subnets/s", nil, 400, "InUseSubnetCannotBeDeleted", "in use by")
		c.no("DELETE", net+"/virtualNetworks/vnet", nil, 400, "InUseSubnetCannotBeDeleted", "in use by")
		c.no("DELETE", net+"/networkSecurityGroups/nsg", nil, 400, "InUseNetworkSecurityGroupCannotBeDeleted", "in use by")
		disk := p["storageProfile"].(dict)["osDisk"].(dict)["managedDisk"].(dict)["id"].(string)
		c.no("DELETE", disk, nil, 409, "OperationNotAllowed", "is attached to VM")
		c.no("PUT", comp+"/virtualMachines/one", machine("one", "properties.osProfile.adminUsername", "other"), 409, "PropertyChangeNotAllowed", "osProfile.adminUsername")
		c.do("PUT", comp+"/virtualMachines/one", machine("one", "tags", dict{"cluster": "two"}))
		c.do("POST", comp+"/virtualMachines/one/deallocate", nil)
		c.wants("one", "succeeded", "deallocated")
		if c.Billed("one") {
			t.Error("deallocated, it costs money")
		}
		h = c.begin("POST", comp+"/virtualMachines/one/start", nil)
		c.wants("one", "updating", "starting")
		c.end(h)
		c.wants("one", "succeeded", "running")
		c.do("POST", comp+"/virtualMachines/one/restart", nil)
		c.do("POST", comp+"/virtualMachines/one/powerOff", nil)
		c.wants("one", "succeeded", "stopped")
		if !c.Billed("one") {
			t.Error("stopped and not deallocated, it costs nothing")
		}
		c.do("DELETE", comp+"/virtualMachines/one?forceDeletion=true", nil)
		c.no("GET", comp+"/virtualMachines/one", nil, 404, "ResourceNotFound", "under resource group 'rg' was not found")
		if got := c.Inventory(); !slices.Equal(got, []string{"networkSecurityGroups rg/nsg", "resourceGroups rg", "virtualNetworks rg/vnet"}) {
			t.Errorf("left: %v", got)
		}
		if status, _, _ := c.call("DELETE", comp+"/virtualMachines/one", nil); status != 204 {
			t.Errorf("what is gone is deleted with %d", status)
		}
		c.do("DELETE", net+"/virtualNetworks/vnet", nil)
		c.do("DELETE", net+"/networkSecurityGroups/nsg", nil)
	})
}

func TestGroups(t *testing.T) {
	virtual(t, func(c client) {
		c.no("GET", group, nil, 404, "ResourceGroupNotFound", "Resource group 'rg' could not be found.")
		c.no("PUT", net+"/publicIPAddresses/x", dict{"location": "eastus"}, 404, "ResourceGroupNotFound", "'rg'")
		c.no("PUT", root+"/resourceGroups/bad.", dict{"location": "eastus"}, 400, "InvalidResourceGroup", "bad.")
		c.no("PUT", group, dict{}, 400, "LocationRequired", "location")
		c.no("PUT", group, dict{"location": "moon"}, 400, "LocationNotAvailableForResourceType", "moon")
		if status, _, _ := c.call("HEAD", group, nil); status != 404 {
			t.Errorf("a look at no group: %d", status)
		}
		c.network("one")
		if status, _, _ := c.call("HEAD", group, nil); status != 204 {
			t.Errorf("a look at the group: %d", status)
		}
		if status, out, _ := c.call("PUT", group, dict{"location": "EastUS", "tags": dict{"sky": "1"}}); status != 200 || out["properties"].(dict)["provisioningState"] != "Succeeded" {
			t.Errorf("again: %d %v", status, out)
		}
		c.no("PUT", group, dict{"location": "westus2"}, 409, "InvalidResourceGroupLocation", "already exists in location 'eastus'")
		c.do("PUT", comp+"/virtualMachines/one", machine("one"))
		c.Take(30 * time.Second)
		h := c.begin("DELETE", group, nil)
		if h.Get("Location") == "" || h.Get("Azure-AsyncOperation") != "" {
			t.Errorf("the headers are %v", h)
		}
		if g := c.get(group); g["properties"].(dict)["provisioningState"] != "Deleting" {
			t.Errorf("the group is %v", g)
		}
		c.no("PUT", group, dict{"location": "eastus"}, 409, "ResourceGroupBeingDeleted", "deprovisioning state")
		c.no("PUT", net+"/publicIPAddresses/x", dict{"location": "eastus"}, 409, "ResourceGroupBeingDeleted", "deprovisioning state")
		c.end(h)
		c.no("GET", group, nil, 404, "ResourceGroupNotFound", "'rg'")
		c.no("DELETE", group, nil, 404, "ResourceGroupNotFound", "'rg'")
		if left := c.Inventory(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestBodiesAreChecked(t *testing.T) {
	virtual(t, func(c client) {
		c.network("one")
		for _, test := range []struct {
			changes []any
			status  int
			code    string
			words   string
		}{
			{[]any{"location", nil}, 400, "LocationRequired", "location"},
			{[]any{"location", "westus2"}, 404, "NotFound", "one-nic not found"},
			{[]any{"tags", dict{"a/b": "c"}}, 400, "InvalidTagNameCharacters", "a/b"},
			{[]any{"tags", dict{"a": strings.Repeat("b", 257)}}, 400, "InvalidTagValue", "256"},
			{[]any{"properties.hardwareProfile.vmSize", "Standard_None"}, 400, "InvalidParameter", "not valid"},
			{[]any{"properties.storageProfile.imageReference.sku", "none"}, 404, "PlatformImageNotFound", "not available"},
			{[]any{"properties.storageProfile.imageReference", dict{"communityGalleryImageId": "/CommunityGalleries/g/Images/i"}}, 404, "GalleryImageNotFound", "eastus"},
			{[]any{"properties.storageProfile.osDisk.createOption", nil}, 400, "InvalidParameter", "createOption"},
			{[]any{"properties.storageProfile.osDisk.diskSizeGB", 10}, 400, "InvalidParameter", "smaller than"},
			{[]any{"properties.hardwareProfile.vmSize", "Standard_D4_v5"}, 400, "InvalidParameter", "does not support the storage account type Premium_LRS"},
			{[]any{"properties.osProfile.adminUsername", "root"}, 400, "InvalidParameter", "not allowed"},
			{[]any{"properties.osProfile.computerName", "a_b"}, 400, "InvalidParameter", "host name"},
			{[]any{"properties.osProfile.customData", "not base64!"}, 400, "InvalidParameter", "Base64"},
			{[]any{"properties.osProfile.linuxConfiguration", dict{}}, 400, "InvalidParameter", "SSH"},
			{[]any{"properties.networkProfile.networkInterfaces", []any{}}, 400, "InvalidParameter", "at least one network interface"},
			{[]any{"properties.evictionPolicy", "Delete"}, 409, "OperationNotAllowed", "Spot"},
			{[]any{"properties.billingProfile", dict{"maxPrice": -1}}, 409, "OperationNotAllowed", "Spot"},
			{[]any{"zones", []any{"9"}}, 400, "InvalidAvailabilityZone", "9"},
			{[]any{"identity", dict{"type": "UserAssigned", "userAssignedIdentities": dict{group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/none": dict{}}}}, 400, "FailedIdentityOperation", "none"},
		} {
			c.no("PUT", comp+"/virtualMachines/one", machine("one", test.changes...), test.status, test.code, test.words)
		}
		c.no("PUT", comp+"/virtualMachines/-bad-", machine("one"), 400, "InvalidParameter", "-bad-")
		c.no("PUT", comp+"/virtualMachines/one?api-version=2030-01-01", machine("one"), 400, "NoRegisteredProviderFound", "2030-01-01")
		status, out, _ := c.send("GET", "https://management.azure.com"+group, nil, "")
		if status != 400 || out["error"].(dict)["code"] != "MissingApiVersionParameter" {
			t.Errorf("without a version: %d %v", status, out)
		}
		other := "/subscriptions/00000000-1111-4222-8333-444444444444"
		c.no("GET", other+"/resourceGroups/rg", nil, 404, "SubscriptionNotFound", "could not be found")
		c.no("GET", "/subscriptions/x/resourceGroups/rg", nil, 400, "InvalidSubscriptionId", "malformed")
		c.no("GET", comp+"/virtualMachines/one", nil, 404, "ResourceNotFound", "was not found")
		c.AddImage("acme:gpu:drivers:1.0.0", "plan")
		image := dict{"publisher": "acme", "offer": "gpu", "sku": "drivers", "version": "1.0.0"}
		c.no("PUT", comp+"/virtualMachines/one", machine("one", "properties.storageProfile.imageReference", image), 400, "VMMarketplaceInvalidInput", "Plan information")
		c.do("PUT", comp+"/virtualMachines/one", machine("one", "properties.storageProfile.imageReference", image, "plan", dict{"name": "drivers", "product": "gpu", "publisher": "acme"}))
		two := machine("one")
		c.no("PUT", comp+"/virtualMachines/two", two, 400, "NicInUse", "one-nic")
	})
}

func TestNetworkIsChecked(t *testing.T) {
	virtual(t, func(c client) {
		c.network("one", "two")
		vnet := func(prefix, subnet string) dict {
			return dict{"location": "eastus", "properties": dict{"addressSpace": dict{"addressPrefixes": []any{prefix}}, "subnets": []any{dict{"name": "s", "properties": dict{"addressPrefix": subnet}}}}}
		}
		c.no("PUT", net+"/virtualNetworks/v", vnet("10.0.0.1/16", "10.0.0.0/24"), 400, "InvalidCIDRNotation", "10.0.0.1/16")
		c.no("PUT", net+"/virtualNetworks/v", vnet("10.0.0.0/16", "10.9.0.0/24"), 400, "NetcfgInvalidSubnet", "outside")
		c.no("PUT", net+"/virtualNetworks/_v", vnet("10.0.0.0/16", "10.0.0.0/24"), 400, "InvalidResourceName", "_v")
		c.no("PUT", net+"/virtualNetworks/vnet/subnets/t", dict{"properties": dict{"addressPrefix": "10.1.0.0/24"}}, 400, "NetcfgSubnetRangesOverlap", "overlaps")
		c.no("PUT", net+"/virtualNetworks/none/subnets/t", dict{"properties": dict{"addressPrefix": "10.1.0.0/24"}}, 404, "ParentResourceNotFound", "none")
		c.no("PUT", net+"/publicIPAddresses/p", dict{"location": "eastus", "sku": dict{"name": "Standard"}, "properties": dict{"publicIPAllocationMethod": "Dynamic"}}, 400, "StandardSkuPublicIPAddressesCannotHaveDynamicAllocation", "must have AllocationMethod set to Static")
		c.no("PUT", net+"/publicIPAddresses/p", dict{"location": "eastus", "properties": dict{}}, 400, "IPv4BasicSkuPublicIpCountLimitReached", "Basic")
		c.no("PUT", net+"/networkInterfaces/n", nic("none"), 400, "InvalidResourceReference", "none-ip")
		c.no("PUT", net+"/networkInterfaces/n", nic("one"), 400, "PublicIPAddressInUse", "one-nic")
		bad := nic("none")
		bad["properties"].(dict)["networkSecurityGroup"] = dict{"id": "nsg"}
		c.no("PUT", net+"/networkInterfaces/n", bad, 400, "LinkedInvalidPropertyId", "nsg")
		rules := net + "/networkSecurityGroups/nsg/securityRules/"
		c.no("PUT", rules+"again", rule("again", 100, "80"), 400, "SecurityRuleConflict", "same Priority")
		c.no("PUT", rules+"low", rule("low", 99, "80"), 400, "SecurityRuleInvalidPriority", "100-4096")
		c.no("PUT", rules+"port", rule("port", 101, "80-70000"), 400, "SecurityRuleInvalidPortRange", "80-70000")
		both := rule("both", 101, "80")
		both["properties"].(dict)["destinationPortRanges"] = []any{"81"}
		c.no("PUT", rules+"both", both, 400, "SecurityRuleParameterIsMissing", "destinationPortRange")
		c.do("PUT", rules+"web", rule("web", 101, "8000-8010"))
		c.do("PUT", comp+"/virtualMachines/one", machine("one"))
		if got := c.OpenPorts("one"); !slices.Equal(got, []string{"8000-8010"}) {
			t.Errorf("open: %v", got)
		}
		nsg := c.get(net + "/networkSecurityGroups/nsg")
		if len(nsg["properties"].(dict)["securityRules"].([]any)) != 2 {
			t.Errorf("its rules are %v", nsg)
		}
		etag := nsg["etag"].(string)
		body := dict{"location": "eastus", "properties": dict{"securityRules": []any{}}}
		text, _ := json.Marshal(body)
		link := "https://management.azure.com" + net + "/networkSecurityGroups/nsg?api-version=2023-09-01"
		if status, out, _ := c.send("PUT", link, map[string]string{"If-Match": etag}, string(text)); status != 200 {
			t.Errorf("with its etag: %d %v", status, out)
		}
		if status, out, _ := c.send("PUT", link, map[string]string{"If-Match": etag}, string(text)); status != 412 || out["error"].(dict)["code"] != "PreconditionFailed" {
			t.Errorf("with a stale etag: %d %v", status, out)
		}
		if got := c.OpenPorts("one"); len(got) > 0 {
			t.Errorf("without rules there are open %v", got)
		}
		c.no("PUT", net+"/virtualNetworks/vnet", dict{"location": "eastus", "properties": dict{"addressSpace": dict{"addressPrefixes": []any{"10.1.0.0/16"}}}}, 400, "InUseSubnetCannotBeDeleted", "Subnet s")
	})
}

func TestNoRoom(t *testing.T) {
	virtual(t, func(c client) {
		c.network("one", "two")
		c.Fill("eastus", "Standard_D4s_v5", 0)
		h := c.begin("PUT", comp+"/virtualMachines/one", machine("one"))
		if code := c.end(h); code != "AllocationFailed" {
			t.Errorf("a full region ends with %q", code)
		}
		if vm := c.get(comp + "/virtualMachines/one"); vm["properties"].(dict)["provisioningState"] != "Failed" {
			t.Errorf("the machine is %v", vm)
		}
		c.no("DELETE", net+"/networkInterfaces/one-nic", nil, 400, "NicReservedForAnotherVm", "180 seconds")
		c.Restore()
		c.Fill("eastus", "Standard_D4s_v5", 0)
		c.AtOnce(true)
		c.no("PUT", comp+"/virtualMachines/two", machine("two"), 409, "SkuNotAvailable", "is currently not available in location 'eastus'")
		c.Restore()
		c.Restrict("eastus", "Standard_D4s_v5")
		c.no("PUT", comp+"/virtualMachines/two", machine("two"), 409, "SkuNotAvailable", "Standard_D4s_v5")
		c.Restrict("westus2", "Standard_D4s_v5", "2")
		for region, want := range map[string]string{"eastus": "Location", "westus2": "Zone"} {
			for _, x := range c.get(root + "/providers/Microsoft.Compute/skus?$filter=" + url.QueryEscape("location eq '"+region+"'"))["value"].([]any) {
				sku := x.(dict)
				limits := sku["restrictions"].([]any)
				if sku["name"] == "Standard_D4s_v5" && (len(limits) != 1 || limits[0].(dict)["type"] != want || limits[0].(dict)["reasonCode"] != "NotAvailableForSubscription") {
					t.Errorf("in %s: %v", region, limits)
				}
			}
		}
		c.Restore()
		if err := c.LimitQuota("eastus", "standardDSv5Family", 4); err != nil {
			t.Fatal(err)
		}
		c.do("PUT", comp+"/virtualMachines/one", machine("one"))
		c.no("PUT", comp+"/virtualMachines/two", machine("two"), 409, "OperationNotAllowed", "exceeding approved standardDSv5Family Cores quota. Additional details - Deployment Model: Resource Manager, Location: eastus, Current Limit: 4, Current Usage: 4, Additional Required: 4, (Minimum) New Limit Required: 8.")
		usage := map[string]string{}
		for _, x := range c.get(root + "/providers/Microsoft.Compute/locations/eastus/usages")["value"].([]any) {
			u := x.(dict)
			usage[u["name"].(dict)["value"].(string)] = fmt.Sprint(u["currentValue"], "/", u["limit"])
		}
		if usage["standardDSv5Family"] != "4/4" || usage["cores"] != "4/100000" {
			t.Errorf("usages are %v", usage)
		}
		c.Restore()
		c.Cores("eastus", 4)
		c.no("PUT", comp+"/virtualMachines/two", machine("two"), 409, "OperationNotAllowed", "exceeding approved Total Regional Cores quota")
		c.Restore()
		c.Quota("eastus", 0)
		c.no("PUT", comp+"/virtualMachines/two", machine("two", "properties.priority", "Spot"), 409, "OperationNotAllowed", "exceeding approved LowPriorityCores quota")
	})
}

func TestSpot(t *testing.T) {
	virtual(t, func(c client) {
		c.network("stops", "goes", "stays")
		c.do("PUT", comp+"/virtualMachines/stops", machine("stops", "properties.priority", "Spot"))
		c.do("PUT", comp+"/virtualMachines/goes", machine("goes", "properties.priority", "Spot", "properties.evictionPolicy", "Delete", "properties.billingProfile", dict{"maxPrice": -1}))
		c.do("PUT", comp+"/virtualMachines/stays", machine("stays"))
		for _, name := range []string{"stops", "goes", "stays"} {
			c.Preempt(name, 30*time.Second)
		}
		time.Sleep(31 * time.Second)
		c.wants("stops", "succeeded", "deallocated")
		c.no("GET", comp+"/virtualMachines/goes", nil, 404, "ResourceNotFound", "goes")
		c.wants("stays", "succeeded", "running")
		if slices.ContainsFunc(c.Inventory(), func(line string) bool { return strings.Contains(line, "goes") }) {
			t.Errorf("left: %v", c.Inventory())
		}
	})
}

func TestLists(t *testing.T) {
	virtual(t, func(c client) {
		c.network("a", "b", "d")
		for n, name := range []string{"a", "b", "d"} {
			c.do("PUT", comp+"/virtualMachines/"+name, machine(name, "tags", dict{"Cluster": fmt.Sprint(n % 2), "sky": "it's"}))
		}
		all := func(path string) (names []string) {
			for path != "" {
				page := c.get(path)
				for _, x := range page["value"].([]any) {
					names = append(names, x.(dict)["name"].(string))
				}
				path, _ = page["nextLink"].(string)
			}
			return names
		}
		c.Pages(2)
		for _, path := range []string{comp + "/virtualMachines", root + "/providers/Microsoft.Compute/virtualMachines"} {
			if got := all(path); !slices.Equal(got, []string{"a", "b", "d"}) {
				t.Errorf("%s: %v", path, got)
			}
		}
		if x := c.get(root + "/providers/Microsoft.Compute/virtualMachines?statusOnly=true")["value"].([]any)[0].(dict); x["properties"].(dict)["instanceView"] == nil {
			t.Errorf("with states: %v", x)
		}
		filtered := func(text string) string { return root + "/resources?$filter=" + url.QueryEscape(text) }
		for text, want := range map[string][]string{
			"tagName eq 'cluster' and tagValue eq '0'":            {"a", "d"},
			"tagName eq 'sky' and tagValue eq 'it''s'":            {"a", "b", "d"},
			"resourceType eq 'Microsoft.Compute/virtualMachines'": {"a", "b", "d"},
			"name eq 'vnet' or name eq 'nsg'":                     {"nsg", "vnet"},
			"tagName eq 'none'":                                   nil,
		} {
			got := all(filtered(text))
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s: %v, not %v", text, got, want)
			}
		}
		if x := c.get(filtered("tagName eq 'sky'"))["value"].([]any)[0].(dict); x["tags"] != nil {
			t.Errorf("after a filter by a tag there are tags: %v", x)
		}
		c.no("GET", filtered("tagName eq 'sky' and resourceType eq 'Microsoft.Compute/virtualMachines'"), nil, 400, "InvalidFilterInQueryString", "tagName")
		if got := all(root + "/resourcegroups?$filter=" + url.QueryEscape("tagName eq 'sky' and tagValue eq '1'")); !slices.Equal(got, []string{"rg"}) {
			t.Errorf("groups: %v", got)
		}
		c.Restore()
		c.do("PUT", net+"/publicIPAddresses/e-ip", dict{"location": "eastus", "sku": dict{"name": "Standard"}, "properties": dict{"publicIPAllocationMethod": "Static"}})
		c.do("PUT", net+"/networkInterfaces/e-nic", nic("e"))
		c.HideNew(1)
		c.do("PUT", comp+"/virtualMachines/e", machine("e"))
		if got := all(comp + "/virtualMachines"); slices.Contains(got, "e") {
			t.Error("a new machine is in the first list")
		}
		if got := all(comp + "/virtualMachines"); !slices.Contains(got, "e") {
			t.Error("a new machine is not in the second list")
		}
		c.Restore()
		c.Lag(1)
		c.do("PUT", net+"/publicIPAddresses/young", dict{"location": "eastus", "sku": dict{"name": "Standard"}, "properties": dict{"publicIPAllocationMethod": "Static"}})
		c.no("GET", net+"/publicIPAddresses/young", nil, 404, "ResourceNotFound", "young")
		c.get(net + "/publicIPAddresses/young")
	})
}

func TestFaults(t *testing.T) {
	virtual(t, func(c client) {
		c.network("one", "two")
		c.Inject(model.Fault{Kind: model.Lose, Op: "instances.create", Times: 1})
		if status, out, _ := c.call("PUT", comp+"/virtualMachines/one", machine("one")); status != 0 {
			t.Errorf("an answer that is lost: %d %v", status, out)
		}
		c.get(comp + "/virtualMachines/one")
		c.Inject(model.Fault{Kind: model.Fail, Op: "instances.create", Code: cloudtest.OddCode, Times: 1})
		c.no("PUT", comp+"/virtualMachines/two", machine("two"), 400, cloudtest.OddCode, "refused")
		c.Forbid()
		c.no("PUT", comp+"/virtualMachines/two", machine("two"), 403, "AuthorizationFailed", "does not have authorization to perform action 'Microsoft.Compute/virtualMachines/write' over scope")
		c.no("POST", comp+"/virtualMachines/one/start", nil, 403, "AuthorizationFailed", "Microsoft.Compute/virtualMachines/start/action")
		if p := c.get(root + "/providers/Microsoft.Authorization/permissions")["value"].([]any)[0].(dict); fmt.Sprint(p["actions"]) != "[*/read]" {
			t.Errorf("permissions are %v", p)
		}
		c.Restore()
		c.Deny("Microsoft.Network/networkInterfaces/write")
		c.no("PUT", net+"/networkInterfaces/x", nic("x"), 403, "AuthorizationFailed", "Microsoft.Network/networkInterfaces/write")
		c.Restore()
		c.Refuse()
		c.no("GET", group, nil, 401, "InvalidAuthenticationToken", "access token is invalid")
		c.Restore()
		c.Throttle()
		if status, out, h := c.call("GET", group, nil); status != 429 || h.Get("Retry-After") == "" || out["error"].(dict)["code"] != "SubscriptionRequestsThrottled" {
			t.Errorf("too many: %d %v %v", status, out, h)
		}
		c.Restore()
		c.State("Disabled")
		c.no("PUT", group, dict{"location": "eastus"}, 409, "ReadOnlyDisabledSubscription", "marked as read only")
		if s := c.get(root); s["state"] != "Disabled" {
			t.Errorf("the subscription is %v", s)
		}
		c.Restore()
		c.Unregister("Microsoft.Compute")
		c.no("GET", comp+"/virtualMachines/one", nil, 409, "MissingSubscriptionRegistration", "Microsoft.Compute")
		c.begin("POST", root+"/providers/Microsoft.Compute/register", nil)
		if p := c.get(root + "/providers/Microsoft.Compute"); p["registrationState"] != "Registered" {
			t.Errorf("registered: %v", p)
		}
		c.Fail("virtualmachines.put", "OverconstrainedAllocationRequest", "Too restrictive.", 1)
		if code := c.end(c.begin("PUT", comp+"/virtualMachines/two", machine("two"))); code != "OverconstrainedAllocationRequest" {
			t.Errorf("it failed with %q", code)
		}
		c.Lie("one", "dreaming")
		c.wants("one", "succeeded", "dreaming")
		c.Restore()
		c.Kill("one")
		c.no("GET", comp+"/virtualMachines/one", nil, 404, "ResourceNotFound", "one")
	})
}

func TestIdentitiesAndRoles(t *testing.T) {
	virtual(t, func(c client) {
		c.network("one")
		c.Lag(1)
		at := group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/msi"
		c.begin("PUT", at, dict{"location": "eastus"})
		c.call("GET", at, nil)
		id := c.get(at)["properties"].(dict)["principalId"].(string)
		role := root + "/providers/Microsoft.Authorization/roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c"
		assign := group + "/providers/Microsoft.Authorization/roleAssignments/"
		body := dict{"properties": dict{"roleDefinitionId": role, "principalId": id}}
		c.no("PUT", assign+"11111111-1111-4111-8111-111111111111", body, 400, "PrincipalNotFound", "replication delay")
		c.no("PUT", assign+"x", body, 400, "InvalidRoleAssignmentId", "GUID")
		c.begin("PUT", assign+"11111111-1111-4111-8111-111111111111", body)
		c.no("PUT", assign+"22222222-1111-4111-8111-111111111111", body, 409, "RoleAssignmentExists", "11111111111141118111111111111111")
		if all := c.get(group + "/providers/Microsoft.Authorization/roleAssignments?$filter=" + url.QueryEscape("principalId eq '"+id+"'"))["value"].([]any); len(all) != 1 {
			t.Errorf("assignments: %v", all)
		}
		c.Restore()
		identity := dict{"type": "UserAssigned", "userAssignedIdentities": dict{at: dict{}}}
		c.Deny("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action")
		c.no("PUT", comp+"/virtualMachines/one", machine("one", "identity", identity), 403, "LinkedAuthorizationFailed", "assign/action")
		c.Restore()
		c.do("PUT", comp+"/virtualMachines/one", machine("one", "identity", identity))
		if got := c.get(comp + "/virtualMachines/one")["identity"].(dict)["userAssignedIdentities"].(dict)[at].(dict); got["principalId"] != id {
			t.Errorf("its identity is %v", got)
		}
		c.begin("DELETE", assign+"11111111-1111-4111-8111-111111111111", nil)
		c.do("DELETE", group, nil)
		if left := c.Inventory(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestLoopback(t *testing.T) {
	f := azurefake.New()
	s := httptest.NewServer(f)
	defer s.Close()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/subscriptions?api-version=2022-12-01", nil)
	req.Header.Set("Authorization", "Bearer "+f.Token())
	resp, err := s.Client().Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
}
