package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var east = cloud.Place{Cloud: Name, Region: "eastus"}

// What each code rules out: the type of the error, the place, and what it says of the
// thing that the call was about.
func TestRefusals(t *testing.T) {
	const all, region = "azure", "azure/eastus"
	rows := map[string]struct {
		message string
		kind    vm.Kind
		want    string // type and place
	}{
		"SkuNotAvailable":                       {want: "capacity " + region},
		"AllocationFailed":                      {want: "capacity " + region},
		"ZonalAllocationFailed":                 {want: "capacity " + region},
		"OverconstrainedAllocationRequest":      {want: "capacity " + region},
		"OverconstrainedZonalAllocationRequest": {want: "capacity " + region},
		"RegionDoesNotAllowProvisioning":        {want: "capacity " + region},
		"SubnetIsFull":                          {want: "capacity " + region},
		"SpotPriceGreaterThanProvidedMaxPrice":  {want: "capacity " + region},

		"QuotaExceeded":                        {want: "quota " + region},
		"ResourceQuotaExceeded":                {want: "quota " + region},
		"PublicIPCountLimitReached":            {want: "quota " + region},
		"StaticPublicIPCountLimitReached":      {want: "quota " + region},
		"StandardSkuPublicIPCountLimitReached": {want: "quota " + region},
		"VnetCountLimitReached":                {want: "quota " + region},
		"ResourceGroupQuotaExceeded":           {want: "quota " + all},
		"RoleAssignmentLimitExceeded":          {want: "quota " + all},

		"InvalidAuthenticationToken":       {want: "auth az login"},
		"InvalidAuthenticationTokenTenant": {want: "auth az login --tenant"},
		"ExpiredAuthenticationToken":       {want: "auth az login"},
		"AuthenticationFailed":             {want: "auth az login"},
		"ReadOnlyDisabledSubscription":     {want: "auth enable the subscription"},
		"DisabledSubscription":             {want: "auth enable the subscription"},
		"SubscriptionNotFound":             {want: "auth az account set"},
		"InvalidSubscriptionId":            {want: "auth az account set"},
		"SubscriptionNotRegistered":        {want: "auth az provider register --namespace Microsoft.Compute"},
		"MissingSubscriptionRegistration":  {want: "auth az provider register --namespace Microsoft.Network"},

		"AuthorizationFailed":                       {want: "permission " + all},
		"LinkedAuthorizationFailed":                 {want: "permission " + all},
		"ScopeLocked":                               {want: "permission " + all},
		"RequestDisallowedByPolicy":                 {want: "permission " + region},
		"RequestDisallowedByAzure":                  {want: "permission " + region},
		"SubscriptionNotAuthorizedForImage":         {want: "permission " + region},
		"MarketplacePurchaseEligibilityFailed":      {want: "permission " + region},
		"ResourcePurchaseValidationFailed":          {want: "permission " + region},
		"AzureSpotFeatureNotEnabledForSubscription": {want: "permission " + region},

		"BadRequest":                           {want: "invalid " + region},
		"InvalidParameter":                     {want: "invalid " + region},
		"InvalidRequestContent":                {want: "invalid " + region},
		"InvalidRequestFormat":                 {want: "invalid " + region},
		"AzureSpotIsNotSupportedForThisVMSize": {want: "invalid " + region},
		"OSProvisioningTimedOut":               {want: "invalid " + region},
		"ImageNotFound":                        {want: "invalid " + region},
		"PlatformImageNotFound":                {want: "invalid " + region},
		"GalleryImageNotFound":                 {want: "invalid " + region},
		"VMMarketplaceInvalidInput":            {want: "invalid " + region},
		"LocationNotAvailableForResourceType":  {want: "invalid " + region},
		"NoRegisteredProviderFound":            {want: "invalid " + region},
		"MissingRegistrationForLocation":       {want: "invalid " + region},
		"ReservedResourceName":                 {want: "invalid " + all},

		throttled:                       {want: "throttled"},
		"Throttled":                     {want: "throttled"},
		"SubscriptionRequestsThrottled": {want: "throttled"},
		"RetryableError":                {want: "throttled"},

		"ResourceNotFound":         {kind: vm.Missing, want: "invalid " + region},
		"ResourceGroupNotFound":    {kind: vm.Missing, want: "invalid " + region},
		"ParentResourceNotFound":   {kind: vm.Missing, want: "invalid " + region},
		"NotFound":                 {kind: vm.Missing, want: "invalid " + region},
		"InvalidResourceReference": {kind: vm.Missing, want: "invalid " + region},
		"PrincipalNotFound":        {kind: vm.Missing, want: "invalid " + region},

		"PropertyChangeNotAllowed": {kind: vm.Changed, want: "other"},
		"OperationPreempted":       {kind: vm.Changed, want: "other"},
		"Canceled":                 {kind: vm.Changed, want: "other"},
		"CanceledAndSupersededDueToAnotherOperation": {kind: vm.Changed, want: "other"},
		"PreconditionFailed":                         {kind: vm.Changed, want: "other"},

		"ResourceGroupBeingDeleted":                {kind: vm.Busy, want: "other"},
		"ResourceGroupDeletionBlocked":             {kind: vm.Busy, want: "other"},
		"AnotherOperationInProgress":               {kind: vm.Busy, want: "other"},
		"RetryableErrorDueToAnotherOperation":      {kind: vm.Busy, want: "other"},
		"ReferencedResourceNotProvisioned":         {kind: vm.Busy, want: "other"},
		"NicReservedForAnotherVm":                  {kind: vm.Busy, want: "other"},
		"NicInUse":                                 {kind: vm.Busy, want: "other"},
		"InUseSubnetCannotBeDeleted":               {kind: vm.Busy, want: "other"},
		"InUseNetworkSecurityGroupCannotBeDeleted": {kind: vm.Busy, want: "other"},
		"PublicIPAddressCannotBeDeleted":           {kind: vm.Busy, want: "other"},

		"NetworkingInternalOperationError": {kind: vm.Lost, want: "unreachable"},
		"InternalServerError":              {kind: vm.Lost, want: "unreachable"},

		"OverConstrainedAllocationRequest":                        {want: "capacity " + region},
		"MissingSubscription":                                     {want: "auth az account set"},
		"InvalidAuthenticationTokenAudience":                      {want: "auth az login"},
		"InvalidSubscriptionRegistrationState":                    {want: "auth az provider register"},
		"FailedRoleAssignmentCreation":                            {want: "permission " + all},
		"AppendPoliciesFieldsExist":                               {want: "permission " + region},
		"ConflictingAppendPolicies":                               {want: "permission " + region},
		"InvalidPolicyParameters":                                 {want: "permission " + region},
		"CustomerDeniedServicePlanAccess":                         {want: "permission " + region},
		"InvalidParameterValue":                                   {want: "invalid " + region},
		"InvalidApiVersionParameter":                              {want: "invalid " + region},
		"MissingApiVersionParameter":                              {want: "invalid " + region},
		"BadRequestFormat":                                        {want: "invalid " + region},
		"LocationRequired":                                        {want: "invalid " + region},
		"LinkedInvalidPropertyId":                                 {want: "invalid " + region},
		"MismatchingResourceSegments":                             {want: "invalid " + region},
		"NotSupported":                                            {want: "invalid " + region},
		"InvalidAvailabilityZone":                                 {want: "invalid " + region},
		"FailedIdentityOperation":                                 {want: "invalid " + region},
		"InvalidIdentityResourceId":                               {want: "invalid " + region},
		"InvalidRoleAssignmentId":                                 {want: "invalid " + region},
		"InvalidCIDRNotation":                                     {want: "invalid " + region},
		"NetcfgInvalidSubnet":                                     {want: "invalid " + region},
		"NetcfgSubnetRangesOverlap":                               {want: "invalid " + region},
		"SecurityRuleInvalid":                                     {want: "invalid " + region},
		"SecurityRuleInvalidAddressPrefix":                        {want: "invalid " + region},
		"SecurityRuleInvalidPortRange":                            {want: "invalid " + region},
		"SecurityRuleInvalidPriority":                             {want: "invalid " + region},
		"SecurityRuleParameterIsMissing":                          {want: "invalid " + region},
		"SubnetIsNotProvided":                                     {want: "invalid " + region},
		"NetworkInterfaceMustHaveAtLeastOneIpConfiguration":       {want: "invalid " + region},
		"StandardSkuPublicIPAddressesCannotHaveDynamicAllocation": {want: "invalid " + region},
		"EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines":    {want: "invalid " + region},
		"MaxPriceIsSupportedOnlyForAzureSpotVirtualMachines":      {want: "invalid " + region},
		"MaxPriceValueInvalid":                                    {want: "invalid " + region},
		"OSProvisioningClientError":                               {want: "invalid " + region},
		"DiskImageNotReady":                                       {want: "invalid " + region},
		"MissingRegistrationForType":                              {want: "invalid " + region},
		"InvalidResourceGroupLocation":                            {want: "invalid " + region},
		"InvalidResourceLocation":                                 {want: "invalid " + region},
		"ApplicationGatewaySubnetCannotBeUsedByOtherResources":    {want: "invalid " + region},
		"GatewaySubnet":                                           {want: "invalid " + region},
		"SubnetWithExternalResourcesCannotBeUsedByOtherResources": {want: "invalid " + region},
		"ResourceNotPermittedOnDelegatedSubnet":                   {want: "invalid " + region},
		"InvalidResourceName":                                     {want: "invalid " + all},
		"InvalidResourceGroup":                                    {want: "invalid " + all},
		"InvalidTagName":                                          {want: "invalid " + all},
		"InvalidTagNameCharacters":                                {want: "invalid " + all},
		"InvalidTagValue":                                         {want: "invalid " + all},
		"ReservedTagName":                                         {want: "invalid " + all},
		"TagCountExceedsLimit":                                    {want: "invalid " + all},
		"VMNotFound":                                              {kind: vm.Missing, want: "invalid " + region},
		"OperationNotFound":                                       {kind: vm.Missing, want: "invalid " + region},
		"RoleAssignmentNotFound":                                  {kind: vm.Missing, want: "invalid " + region},
		"InvalidResourceType":                                     {kind: vm.Missing, want: "invalid " + region},
		"InvalidResourceNamespace":                                {kind: vm.Missing, want: "invalid " + region},
		"RoleAssignmentExists":                                    {kind: vm.Changed, want: "other"},
		"RoleAssignmentUpdateNotPermitted":                        {kind: vm.Changed, want: "other"},
		"SecurityRuleConflict":                                    {kind: vm.Changed, want: "other"},
		"VMPriorityCannotBeApplied":                               {kind: vm.Changed, want: "other"},
		"MaxPriceChangeNotAllowed":                                {kind: vm.Changed, want: "other"},
		"MaxPriceChangeNotAllowedForAllocatedVMs":                 {kind: vm.Changed, want: "other"},
		"PublicIPAddressInUse":                                    {kind: vm.Busy, want: "other"},
		"AttachDiskWhileBeingDetached":                            {kind: vm.Busy, want: "other"},
		"ConflictingUserInput":                                    {kind: vm.Busy, want: "other"},
		"ResourceUpdateBlockedOnPlatformUpdate":                   {kind: vm.Busy, want: "other"},
		"ResourcesBeingMoved":                                     {kind: vm.Busy, want: "other"},
		"ResourceGroupDeletionTimeout":                            {kind: vm.Busy, want: "other"},
		"CannotDeleteResource":                                    {kind: vm.Busy, want: "other"},
		"Conflict":                                                {kind: vm.Busy, want: "other"},
		"OperationNotAllowed":                                     {kind: vm.Busy, want: "other"},
		"InternalOperationError":                                  {kind: vm.Lost, want: "unreachable"},
		"InternalExecutionError":                                  {kind: vm.Lost, want: "unreachable"},
		"OSProvisioningInternalError":                             {kind: vm.Lost, want: "unreachable"},
		"DiskPreparationError":                                    {kind: vm.Lost, want: "unreachable"},
		"DiskProcessingError":                                     {kind: vm.Lost, want: "unreachable"},
		"VMStartTimedOut":                                         {kind: vm.Lost, want: "unreachable"},
		"ResourceDeploymentFailure":                               {want: "invalid " + region},
		"DeploymentFailed":                                        {want: "invalid " + region},
	}
	for _, table := range []map[string]vm.Meaning{refusals.Codes, refusals.Vague} {
		for code := range table {
			if _, ok := rows[code]; !ok {
				t.Errorf("%s is in the table and not tested", code)
			}
		}
	}
	rows["NobodyKnowsThis"] = struct {
		message string
		kind    vm.Kind
		want    string
	}{"Shown whole.", vm.Refused, "unknown"}
	// OperationNotAllowed in its shapes, as the reference has them.
	for message, want := range map[string]string{
		"Operation could not be completed as it results in exceeding approved standardNCFamily Cores quota. Additional details - Deployment Model: Resource Manager, Location: eastus, Current Limit: 0": "quota " + region,
		"Operation could not be completed as it results in exceeding approved Total Regional Cores quota.":                                                                                               "quota " + region,
		"Operation results in exceeding quota limits of Core. Maximum allowed: 4, Current in use: 4, Additional requested: 2.":                                                                           "quota " + region,
		"The server rejected the request because too many requests have been received for this subscription.":                                                                                            "throttled",
		"VM 'a' is marked for deletion.": "other",
		"Operation 'start' is not allowed on VM 'a' since another operation is in progress.":                                  "other",
		"An ongoing operation is changing power state of Virtual Machine a to b. Please perform operation c after some time.": "other",
		"Unable to add or update the VM. The requested VM size a may not be available in the existing allocation unit.":       "capacity " + region,
		"The resource a cannot be created from Image b until Image has been successfully created.":                            "invalid " + region,
		"Disk with size 30GB, which is smaller than the size 50GB of corresponding disk in Image, is not allowed.":            "invalid " + all,
		"The maximum number of data disks allowed to be attached to a VM of this size is 4.":                                  "invalid " + region,
		"Resizing of an ephemeral disk is not allowed. Something is new":                                                      "other",
	} {
		rows["OperationNotAllowed\x00"+message] = struct {
			message string
			kind    vm.Kind
			want    string
		}{message, map[bool]vm.Kind{true: vm.Busy}[want == "other"], want}
	}
	for code, row := range rows {
		code, _, _ = strings.Cut(code, "\x00")
		body, _ := json.Marshal(map[string]any{"error": map[string]any{"code": code, "message": row.message}})
		err := readError(http.StatusConflict-1, nil, body) // a status that has no meaning by itself
		if kind := refusals.Kind(err); kind != row.kind {
			t.Errorf("%s: kind %d, want %d", code, kind, row.kind)
		}
		got := refusals.Refusal(context.Background(), east, err)
		if said := describe(got); !strings.HasPrefix(row.want, "auth") && said != row.want || strings.HasPrefix(row.want, "auth") && !strings.Contains(said, strings.TrimPrefix(row.want, "auth ")) {
			t.Errorf("%s %q: %s, want %s", code, row.message, said, row.want)
		}
		if !strings.Contains(got.Error(), code) || !strings.Contains(got.Error(), strings.TrimSuffix(row.message, ".")) {
			t.Errorf("%s is not shown whole: %v", code, got)
		}
	}
}

func describe(err error) string {
	var (
		full        *cloud.CapacityError
		quota       *cloud.QuotaError
		auth        *cloud.AuthError
		forbidden   *cloud.PermissionError
		invalid     *cloud.InvalidError
		throttled   *cloud.ThrottledError
		unreachable *cloud.UnreachableError
		unknown     *cloud.UnknownError
	)
	switch {
	case errors.As(err, &unknown):
		return "unknown"
	case errors.As(err, &full):
		return fmt.Sprint("capacity ", full.Place)
	case errors.As(err, &quota):
		return fmt.Sprint("quota ", quota.Place)
	case errors.As(err, &auth):
		return "auth " + auth.Fix
	case errors.As(err, &forbidden):
		return fmt.Sprint("permission ", forbidden.Place)
	case errors.As(err, &invalid):
		return fmt.Sprint("invalid ", invalid.Place)
	case errors.As(err, &throttled):
		return "throttled"
	case errors.As(err, &unreachable):
		return "unreachable"
	}
	return "other"
}

// The code that says most is the one that counts.
func TestErrorsAreReadToTheirReason(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   string
	}{
		{409, `{"error":{"code":"AllocationFailed","message":"No room.","details":[{"code":"Other","message":"x"}]}}`, "AllocationFailed: No room"},
		{409, `{"error":{"code":"ResourceDeploymentFailure","message":"It failed.","details":[{"code":"OSProvisioningTimedOut","message":"Too slow."}]}}`, "OSProvisioningTimedOut: Too slow"},
		{400, `{"error":{"code":"InvalidTemplateDeployment","message":"m","details":[{"code":"ResourceDeploymentFailure","message":"n","details":[{"code":"QuotaExceeded","message":"Too many."}]}]}}`, "QuotaExceeded: Too many"},
		{400, `{"error":{"code":"BadRequest","message":"Outer.","details":[{"code":"NobodyKnows","message":"x"},{"code":"SkuNotAvailable","message":"Gone."}]}}`, "SkuNotAvailable: Gone"},
		{400, `{"error":{"code":"BadRequest","message":"Outer.","details":[{"code":"NobodyKnows","message":"x"}]}}`, "BadRequest: Outer"},
		{400, `{"error":{"code":"New","message":"Outer.","details":[{"code":"Newer","message":"x","details":[{"target":"y"}]},{"code":"Newest"}]}}`, "Newer: x"},
		{409, `{"error":{"code":"ResourceDeploymentFailure","message":"m","details":[{"code":"OperationNotAllowed","message":"exceeding approved Cores quota."}]}}`, "OperationNotAllowed: exceeding approved Cores quota"},
		{429, `{"error":{"code":"OperationNotAllowed","message":"The server rejected the request because too many requests have been received.","details":[{"code":"TooManyRequests","target":"HighCostGet30Min"}]}}`,
			"TooManyRequests: OperationNotAllowed: The server rejected the request because too many requests have been received"},
		{429, `{"error":{"code":"RetryableErrorDueToAnotherOperation","message":"Locked."}}`, "RetryableErrorDueToAnotherOperation: Locked"},
		{500, `{"error":{"code":"InternalServerError","message":"oh"}}`, "<nil>"},
		{404, `<html>`, "<nil>"},
	} {
		if got := fmt.Sprint(readError(tt.status, nil, []byte(tt.body))); got != tt.want {
			t.Errorf("%d %s:\n%s, want %s", tt.status, tt.body, got, tt.want)
		}
	}
}

func TestStates(t *testing.T) {
	for _, tt := range []struct {
		provisioned, power string
		want               vm.State
		said               string
	}{
		{"Creating", "", vm.Pending, "Creating"}, {"Creating", "running", vm.Running, "running"}, {"Updating", "starting", vm.Pending, "starting"},
		{"Succeeded", "running", vm.Running, "running"}, {"Succeeded", "stopping", vm.Stopping, "stopping"}, {"Succeeded", "stopped", vm.Stopped, "stopped"},
		{"Succeeded", "deallocating", vm.Stopping, "deallocating"}, {"Succeeded", "deallocated", vm.Stopped, "deallocated"},
		{"Deleting", "running", vm.Ending, "Deleting"}, {"Failed", "", vm.Pending, "Failed"}, {"Failed", "running", vm.Running, "running"}, {"Migrating", "", vm.Pending, "Migrating"},
		{"Succeeded", "", vm.Unknown, "Succeeded, without a power state"}, {"Succeeded", "odd", vm.Unknown, "odd"}, {"Odd", "running", vm.Unknown, "Odd"},
	} {
		if got, said := state(tt.provisioned, tt.power); got != tt.want || said != tt.said {
			t.Errorf("%s, %s: %v %q, want %v %q", tt.provisioned, tt.power, got, said, tt.want, tt.said)
		}
	}
}

// A machine that Azure could not make says why in its instance view.
func TestAMachineThatFailedSaysWhy(t *testing.T) {
	d := driver{New(Options{}), refusals}
	var m machine
	m.Properties.State = "Failed"
	m.Properties.View.Statuses = []status{{Code: "ProvisioningState/failed/AllocationFailed", Message: "Allocation failed."}}
	got := d.machine(m)
	if said := describe(refusals.Refusal(t.Context(), east, got.Failure)); said != "capacity azure/eastus" || !strings.Contains(got.Failure.Error(), "Allocation failed") {
		t.Errorf("%v: %s", got.Failure, said)
	}
	m.Properties.View.Statuses = append(m.Properties.View.Statuses, status{Code: "PowerState/running"})
	if got := d.machine(m); got.Failure != nil || got.State != vm.Running {
		t.Errorf("a machine that runs has failed: %+v", got)
	}
	m.Properties.View.Statuses = []status{{Code: "PowerState/stopped"}}
	if got := d.machine(m); !got.Detail.(detail).billed || !strings.Contains(got.Reason, "sky stop") || got.State != vm.Stopped {
		t.Errorf("a machine that was switched off from inside: %+v", got)
	}
	if e := failure(status{Code: "ProvisioningState/failed"}); e.Error() != "it could not be made, and Azure does not say why" {
		t.Error(e)
	}
}

func TestPermissionsByPattern(t *testing.T) {
	role := granted{Actions: []string{"Microsoft.Compute/*", "*/read", "Microsoft.Network/virtualNetworks/subnets/*/action"}, NotActions: []string{"Microsoft.Compute/disks/*"}}
	for action, want := range map[string]bool{
		"Microsoft.Compute/virtualMachines/write": true, "microsoft.compute/virtualMachines/start/action": true, "Microsoft.Network/networkInterfaces/read": true,
		"Microsoft.Network/networkInterfaces/write": false, "Microsoft.Compute/disks/write": false, "Microsoft.Network/virtualNetworks/subnets/join/action": true,
	} {
		if got := role.allows(action); got != want {
			t.Errorf("%s: %v", action, got)
		}
	}
	if (granted{}).allows("a") || !(granted{Actions: []string{"*"}}).allows("a/b") {
		t.Error("nothing or everything")
	}
}

func TestRulesForPorts(t *testing.T) {
	var g securityGroup
	g.Properties.Rules = []rule{allow("sky-ssh", firstPriority, "22")}
	r, ok := g.next("web", []string{"9000-9010", "8080", "8080"})
	if !ok || r.Name != "sky-ports-web-1001" || strings.Join(r.Properties.Ports, " ") != "8080 9000-9010" || r.Properties.Priority != 1001 {
		t.Errorf("%+v", r)
	}
	g.Properties.Rules = append(g.Properties.Rules, r)
	if r, ok := g.next("web", []string{"8080", "22"}); ok {
		t.Errorf("what is open is opened again: %+v", r)
	}
	g.Properties.Rules = append(g.Properties.Rules, rule{"deny", ruleText{Direction: "Inbound", Access: "Deny", Priority: 2000, Port: "81"}}, rule{"out", ruleText{Direction: "Outbound", Access: "Allow", Priority: 3000, Port: "81"}})
	if r, ok := g.next("web", []string{"81"}); !ok || r.Properties.Priority != 2001 {
		t.Errorf("%+v", r)
	}
}

func TestLabels(t *testing.T) {
	p := New(Options{Settings: func() map[string]any { return map[string]any{"labels": map[string]any{"team": "a", "n": 7}} }})
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, AuthorizedKey: "ssh-ed25519 AAAA", Nodes: 1, Labels: map[string]string{"team": "b", cloud.TagRank: "9"}, DisplayName: strings.Repeat("ü", 300)}
	if err := p.valid(spec); err != nil {
		t.Error(err)
	}
	tags := p.settings(spec).tags(spec, 2)
	if tags["team"] != "b" || tags["n"] != "7" || tags[cloud.TagRank] != "2" || len([]rune(tags["sky-cluster"])) != 256 || len(tags) > ownTags+3 {
		t.Errorf("%v", tags)
	}
	shared := p.settings(spec).tags(spec, -1)
	if _, ok := shared[cloud.TagHead]; ok || shared[cloud.TagHash] != "h" {
		t.Errorf("%v", shared)
	}
	for key, value := range map[string]string{"a<b": "", "": "", "Azure-x": "", "microsoft.x": "", strings.Repeat("k", 513): "", "k": strings.Repeat("v", 257), "a/b": "", `a\b`: ""} {
		bad := spec
		bad.Labels = map[string]string{key: value}
		if p.valid(bad) == nil {
			t.Errorf("%.20q=%.20q is a tag", key, value)
		}
	}
	many := maps.Clone(spec.Labels)
	for i := range 40 {
		many[fmt.Sprint("k", i)] = ""
	}
	spec.Labels = many
	if p.valid(spec) == nil {
		t.Error("more labels than tags fit")
	}
}

// Every code of the reference's pages is in the table, or cannot be met.
func TestEveryDocumentedCode(t *testing.T) {
	text, err := os.ReadFile("testdata/codes.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		code, reason, excused := strings.Cut(line, ": ")
		if seen[code] || excused && reason == "" {
			t.Errorf("%s: twice, or without a reason", line)
		}
		seen[code] = true
		if refusals.Knows(code) == excused {
			t.Errorf("%s: the table has it: %t", line, refusals.Knows(code))
		}
	}
	if len(seen) < 140 {
		t.Errorf("only %d codes", len(seen))
	}
}
