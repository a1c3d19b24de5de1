package azurefake

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

func badParameter(name, format string, args ...any) *fakehttp.Reply {
	no := refuse(400, "InvalidParameter", format, args...)
	no.Body.(dict)["error"].(dict)["target"] = name
	return no
}

var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,63}$`)

// fixed are what cannot be changed of a machine.
var fixed = []string{"osProfile.adminUsername", "osProfile.computerName", "storageProfile.imageReference", "priority"}

func (f *Fake) changeVM(r *http.Request, t *target, key string, in, p dict) (any, error) {
	o := f.items[key]
	had := o["properties"].(dict)
	for _, field := range fixed {
		a, b := any(had), any(p)
		for _, part := range strings.Split(field, ".") {
			x, _ := a.(dict)
			y, _ := b.(dict)
			a, b = x[part], y[part]
		}
		if b != nil && fmt.Sprint(a) != fmt.Sprint(b) {
			return nil, refuse(409, "PropertyChangeNotAllowed", "Changing property '%s' is not allowed.", field)
		}
	}
	if hardware, ok := p["hardwareProfile"].(dict); ok {
		if name, _ := hardware["vmSize"].(string); !strings.EqualFold(name, f.vms[key].size) {
			return nil, refuse(409, "OperationNotAllowed", "Unable to resize the VM '%s' because the fake does not.", t.name())
		}
	}
	delete(o, "tags")
	if in["tags"] != nil {
		o["tags"] = in["tags"]
	}
	return f.accepted(r, t, 200, f.begin(nil, nil), f.tellVM(r, key)), nil
}

// checkVM reads the body of a creation.
func (f *Fake) checkVM(key string, t *target, in, p dict) (*vm, error) {
	region := strings.ToLower(in["location"].(string))
	hardware, _ := p["hardwareProfile"].(dict)
	asked, _ := hardware["vmSize"].(string)
	size, s, ok := sizeNamed(asked)
	if asked == "" {
		return nil, badParameter("vmSize", "Required parameter 'vmSize' is missing (null).")
	}
	if !ok {
		return nil, badParameter("vmSize", "The value %s provided for the VM size is not valid. The valid sizes in the current region are: %s.", asked, strings.Join(sorted(sizes), ","))
	}
	v := &vm{size: size, region: region, spot: p["priority"] == "Spot" || p["priority"] == "Low"}
	switch policy := p["evictionPolicy"]; {
	case policy == nil, v.spot && policy == "Deallocate":
	case !v.spot:
		return nil, refuse(409, "OperationNotAllowed", "Eviction policy can be set only on Azure Spot Virtual Machines. For more information, see http://aka.ms/AzureSpot/errormessages.")
	case policy == "Delete":
		v.deletes = true
	default:
		return nil, badParameter("evictionPolicy", "The value '%v' of parameter 'evictionPolicy' is invalid.", policy)
	}
	if p["billingProfile"] != nil && !v.spot {
		return nil, refuse(409, "OperationNotAllowed", "Max price can be set only on Azure Spot Virtual Machines.")
	}
	if err := f.checkPrice(asked, p); err != nil {
		return nil, err
	}
	zones := fakehttp.Items(in["zones"])
	if len(zones) > 1 || len(zones) == 1 && !slices.Contains([]any{"1", "2", "3"}, zones[0]) {
		return nil, refuse(400, "InvalidAvailabilityZone", "The zone(s) '%v' for resource '%s' is not supported. The supported zones for location '%s' are '1,2,3'", zones, key, region)
	}
	for _, z := range append([]any{""}, zones...) {
		if slices.Contains(f.restricted[region+" "+size], fmt.Sprint(z)) {
			return nil, notThere(size, region, "")
		}
	}
	for _, err := range []error{f.checkImage(in, p, s), f.checkOS(p), f.checkNICs(key, region, p, v), f.checkIdentity(in), f.checkPlace(key, p, v), f.room(region, size)} {
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

// checkPrice refuses a spot machine that may cost less than it does; -1 is no limit.
func (f *Fake) checkPrice(size string, p dict) error {
	billing, _ := p["billingProfile"].(dict)
	most, ok := billing["maxPrice"].(float64)
	switch {
	case billing["maxPrice"] == nil || most == -1:
		return nil
	case !ok || most <= 0 || math.Round(most*1e5)/1e5 != most:
		return refuse(400, "MaxPriceValueInvalid", "Invalid max price value. The only supported values for max price are -1 or a decimal greater than zero. Max price value of -1 indicates the Azure Spot Virtual Machine will not be evicted for price reasons.")
	case most < f.spotPrice:
		return refuse(409, "SpotPriceGreaterThanProvidedMaxPrice", "Unable to perform operation 'Create VM' since the provided max price '%v USD' is lower than the current spot price '%v USD' for Azure Spot VM size '%s'.", most, f.spotPrice, size)
	}
	return nil
}

func (f *Fake) checkImage(in, p dict, s size) error {
	storage, _ := p["storageProfile"].(dict)
	image, _ := storage["imageReference"].(dict)
	disk, _ := storage["osDisk"].(dict)
	name := ""
	if disk != nil && disk["createOption"] == "Attach" {
		return f.checkAttached(in, p, image, disk)
	}
	switch {
	case image == nil:
		return badParameter("imageReference", "Required parameter 'imageReference' is missing (null).")
	case image["communityGalleryImageId"] != nil:
		name = fmt.Sprint(image["communityGalleryImageId"])
	case image["id"] != nil:
		name = fmt.Sprint(image["id"])
	default:
		name = fmt.Sprintf("%v:%v:%v:%v", image["publisher"], image["offer"], image["sku"], image["version"])
	}
	switch known := f.images[strings.ToLower(name)]; {
	case !known && image["communityGalleryImageId"] != nil:
		return refuse(404, "GalleryImageNotFound", "The gallery image %s is not available in %s region. Please contact image owner to replicate to this region, or change your requested region.", name, in["location"])
	case !known:
		return refuse(404, "PlatformImageNotFound", "The platform image '%s' is not available. Verify that all fields in the storage profile are correct. For more details about storage profile information, please refer to https://aka.ms/storageprofile", name)
	case f.plans[strings.ToLower(name)] && in["plan"] == nil:
		return refuse(400, "VMMarketplaceInvalidInput", "Creating a virtual machine from Marketplace image or a custom image sourced from a Marketplace image requires Plan information in the request. VM: '/%s'.", name)
	}
	if disk == nil || disk["createOption"] != "FromImage" {
		return badParameter("osDisk.createOption", "The value of parameter 'osDisk.createOption' is invalid: it must be FromImage for a machine from an image.")
	}
	if n, ok := disk["diskSizeGB"].(float64); ok && n < 30 {
		return badParameter("osDisk.diskSizeGB", "The specified disk size %v GB is smaller than the size of the corresponding disk in the VM image: 30 GB. This is not allowed. Please choose equal or greater size or do not specify an explicit size.", n)
	}
	if o := disk["deleteOption"]; o != nil && o != "Delete" && o != "Detach" {
		return badParameter("osDisk.deleteOption", "The value '%v' of parameter 'deleteOption' is invalid.", o)
	}
	managed, _ := disk["managedDisk"].(dict)
	if kind, _ := managed["storageAccountType"].(string); kind != "" {
		if !slices.Contains(diskKinds, kind) || strings.HasPrefix(kind, "Ultra") || strings.HasPrefix(kind, "PremiumV2") {
			return badParameter("osDisk.managedDisk.storageAccountType", "The value '%s' of parameter 'storageAccountType' is invalid for an OS disk.", kind)
		}
		if strings.HasPrefix(kind, "Premium") && !s.premium {
			return badParameter("osDisk.managedDisk.storageAccountType", "Requested operation cannot be performed because the VM size does not support the storage account type %s of disk. Consider updating the VM to a size that supports Premium storage.", kind)
		}
	}
	security, _ := p["securityProfile"].(dict)
	if security["securityType"] == "TrustedLaunch" && s.generations == "V1" {
		return refuse(400, "BadRequest", "The VM size does not support Trusted Launch.")
	}
	return nil
}

// attaches reports whether a machine starts from a disk that is there.
func attaches(storage dict) bool {
	disk, _ := storage["osDisk"].(dict)
	return disk["createOption"] == "Attach"
}

// checkAttached is for a machine that starts from a specialized disk:
// https://learn.microsoft.com/azure/virtual-machines/attach-os-disk.
func (f *Fake) checkAttached(in, p, image, disk dict) error {
	managed, _ := disk["managedDisk"].(dict)
	id, _ := managed["id"].(string)
	o := f.items[strings.ToLower(id)]
	switch {
	case image != nil:
		return badParameter("imageReference", "Cannot specify user image overrides for a disk already defined in the specified image reference.")
	case o == nil || f.deleting[strings.ToLower(id)] || !strings.EqualFold(fmt.Sprint(o["location"]), fmt.Sprint(in["location"])):
		return refuse(404, "NotFound", "Disk %s is not found.", id)
	case disk["osType"] != "Linux":
		return badParameter("osDisk.osType", "Required parameter 'osDisk.osType' is missing (null).")
	case managed["storageAccountType"] != nil:
		return refuse(400, "BadRequest", "storageAccountType of a disk that is attached cannot be given.")
	}
	if err := diskUsers(f, strings.ToLower(id)); err != nil {
		return err
	}
	q := o["properties"].(dict)
	security, _ := p["securityProfile"].(dict)
	has, _ := q["securityProfile"].(dict)
	if fmt.Sprint(security["securityType"]) != fmt.Sprint(has["securityType"]) {
		return refuse(400, "BadRequest", "Security type of VM is not compatible with the security type of attached OS Disk.")
	}
	if q["purchasePlan"] != nil && in["plan"] == nil {
		return refuse(400, "VMMarketplaceInvalidInput", "Creating a virtual machine from Marketplace image or a custom image sourced from a Marketplace image requires Plan information in the request.")
	}
	return nil
}

func (f *Fake) checkOS(p dict) error {
	os, _ := p["osProfile"].(dict)
	if storage, _ := p["storageProfile"].(dict); attaches(storage) {
		if os != nil {
			return badParameter("osProfile", "Parameter 'osProfile' is not allowed.")
		}
		return nil
	}
	if os == nil {
		return badParameter("osProfile", "Required parameter 'osProfile' is missing (null).")
	}
	user, _ := os["adminUsername"].(string)
	computer, _ := os["computerName"].(string)
	linux, _ := os["linuxConfiguration"].(dict)
	ssh, _ := linux["ssh"].(dict)
	keys := fakehttp.Items(ssh["publicKeys"])
	switch {
	case !userName.MatchString(user) || slices.Contains([]string{"root", "admin", "user", "test"}, user):
		return badParameter("adminUsername", "The Admin Username specified is not allowed.")
	case computer == "" || len(computer) > 64 || strings.ContainsAny(computer, "_.~!@#$%^&*()=+[]{}\\|;:'\",<>/? "):
		return badParameter("computerName", "Linux host name cannot exceed 64 characters in length or contain the following characters: ` ~ ! @ # $ %% ^ & * ( ) = + _ [ ] { } \\ | ; : ' \" , < > / ?.")
	case len(keys) == 0 && os["adminPassword"] == nil:
		return badParameter("linuxConfiguration.ssh.publicKeys", "Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	}
	for _, x := range keys {
		k, _ := x.(dict)
		if want := "/home/" + user + "/.ssh/authorized_keys"; k["path"] != want {
			return badParameter("linuxConfiguration.ssh.publicKeys.path", "Destination path for SSH public keys is currently limited to its default value %s due to a known issue in Linux provisioning agent.", want)
		}
		if data, _ := k["keyData"].(string); !strings.HasPrefix(data, "ssh-rsa ") && !strings.HasPrefix(data, "ssh-ed25519 ") {
			return badParameter("linuxConfiguration.ssh.publicKeys.keyData", "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid.")
		}
	}
	if data, ok := os["customData"].(string); ok {
		raw, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return badParameter("customData", "Custom data must be Base64 encoded.")
		}
		if len(raw) > 65535 {
			return badParameter("customData", "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters.")
		}
	}
	return nil
}

func (f *Fake) checkNICs(key, region string, p dict, v *vm) error {
	profile, _ := p["networkProfile"].(dict)
	nics := fakehttp.Items(profile["networkInterfaces"])
	if len(nics) == 0 {
		return badParameter("networkProfile", "Virtual machine must have at least one network interface.")
	}
	for _, x := range nics {
		n, _ := x.(dict)
		id := strings.ToLower(fmt.Sprint(n["id"]))
		o := f.items[id]
		if o == nil || f.deleting[id] || o["location"] != region {
			return refuse(404, "NotFound", "Resource %v not found.", n["id"])
		}
		if user := f.vmWith(id); user != "" && user != key {
			return refuse(400, "NicInUse", "Network Interface %v is used by existing VM %s.", n["id"], f.items[user]["id"])
		}
		if err := f.isReserved(id, key); err != nil {
			return err
		}
		v.nics = append(v.nics, id)
		q, _ := n["properties"].(dict)
		if q["deleteOption"] != "Delete" {
			continue
		}
		v.gone = append(v.gone, id)
		for _, c := range fakehttp.Items(o["properties"].(dict)["ipConfigurations"]) {
			if ref, ok := c.(dict)["properties"].(dict)["publicIPAddress"].(dict); ok {
				if option, _ := ref["properties"].(dict); option["deleteOption"] == "Delete" {
					v.gone = append(v.gone, strings.ToLower(ref["id"].(string)))
				}
			}
		}
	}
	return nil
}

func (f *Fake) checkIdentity(in dict) error {
	identity, _ := in["identity"].(dict)
	given, _ := identity["userAssignedIdentities"].(dict)
	if identity != nil && strings.Contains(fmt.Sprint(identity["type"]), "UserAssigned") && len(given) == 0 {
		return refuse(400, "InvalidIdentityResourceId", "The user assigned identities are missing.")
	}
	for ref := range given {
		if o := f.items[strings.ToLower(ref)]; o == nil {
			return refuse(400, "FailedIdentityOperation", "Identity operation for resource failed with error 'Failed to perform resource identity operation. Status: 'BadRequest'. Response: {\"error\":{\"code\":\"BadRequest\",\"message\":\"Resource '%s' was not found.\"}}'.", ref)
		}
		if !f.may("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action") {
			return refuse(403, "LinkedAuthorizationFailed", "The client '%s' with object id '%s' has permission to perform action 'Microsoft.Compute/virtualMachines/write' on scope; however, it does not have permission to perform action(s) 'Microsoft.ManagedIdentity/userAssignedIdentities/assign/action' on the linked scope(s) '%s'.", Client, Object, ref)
		}
	}
	return nil
}
