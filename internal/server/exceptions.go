package server

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/server/pickle"
)

// Clients rebuild a failure as cls(*args, **attributes), where cls is a Python
// builtin or one of their own exception classes. A wrong argument shows the
// user a TypeError in place of the message, so this table says for each class
// what its constructor takes.

// An attribute is a keyword argument with what it is when nobody set it.
type attribute struct {
	name string
	none any
}

// theMessage as an attribute's none stands for the failure's message.
type theMessage struct{}

// A class is a constructor: with the message as its one positional argument or
// without any, and its keyword arguments.
type class struct {
	message    bool
	attributes []attribute
}

var plainClass = class{message: true}

// classes are those whose constructors take more than the message.
var classes = sync.OnceValue(func() map[string]class {
	return map[string]class{
		"ResourcesUnavailableError": {true, []attribute{{"no_failover", false}, {"failover_history", []any{}}}},
		"KubeAPIUnreachableError":   {true, []attribute{{"no_failover", false}, {"failover_history", []any{}}}},
		"ClusterNotUpError":         {true, []attribute{{"cluster_status", nil}, {"handle", nil}}},
		"CommandError": {false, []attribute{{"returncode", 1}, {"command", ""}, {"error_msg", theMessage{}},
			{"detailed_reason", nil}, {"failure", nil}}},
		"CommandFailureException": {false, []attribute{{"command", ""}, {"failure", ""}, {"error_msg", theMessage{}},
			{"detailed_reason", nil}}},
		"CloudError":                {true, []attribute{{"cloud_provider", ""}, {"error_type", ""}}},
		"ExecutionRetryableError":   {true, []attribute{{"hint", ""}, {"retry_wait_seconds", 0}}},
		"WorkspaceAmbiguousError":   {false, []attribute{{"accessible", []any{}}, {"note", nil}}},
		"KubernetesValidationError": {false, []attribute{{"path", []any{}}, {"message", theMessage{}}}},
		"ProvisionPrechecksError":   {false, []attribute{{"reasons", []any{}}}},
		"FetchClusterInfoError":     {false, []attribute{{"reason", nil}}},
	}
})

// plainClasses take just the message. The first two lines are Python's own.
var plainClasses = setOf(`
	ArithmeticError AssertionError AttributeError BufferError ConnectionError ConnectionRefusedError EOFError Exception FileExistsError
	FileNotFoundError IndexError InterruptedError IsADirectoryError KeyboardInterrupt KeyError LookupError MemoryError NotADirectoryError NotImplementedError
	OSError OverflowError PermissionError RecursionError RuntimeError TimeoutError TypeError ValueError ZeroDivisionError
	ClusterDoesNotExist InvalidSkyPilotConfigError StorageSpecError StorageSourceError StorageNameError StorageModeError
	APIVersionMismatchError APINotSupportedError NotSupportedError ResourcesMismatchError ClusterOwnerIdentityMismatchError
	CloudUserIdentityError NoCloudAccessError InvalidClusterNameError InvalidCloudConfigs InvalidCloudCredentials
	InconsistentHighAvailabilityError ManagedJobReachedMaxRetriesError ManagedJobStatusError ManagedJobUserCancelledError
	ClusterSetUpError ClusterStatusFetchingError CachedClusterUnavailable NetworkError StorageError StorageInitError
	StorageBucketCreateError StorageBucketGetError StorageBucketDeleteError StorageUploadError StorageExternalDeletionError
	NonExistentStorageAccountError ServeUserTerminatedError PortDoesNotExistError UserRequestRejectedByPolicy RestfulPolicyError
	NoClusterLaunchedError RequestCancelled ExecutionPoolFullError RequestAlreadyExistsError PermissionDeniedError
	NoWorkspaceAccessError InvalidWorkspaceNameError InvalidRecipeNameError RecipeAlreadyExistsError VolumeNotReadyError
	VolumeNotFoundError VolumeTopologyConflictError GitError RequestInterruptedError SkyletInternalError
	SkyletMethodNotImplementedError SkyletUnavailableError ClientError ConcurrentWorkerExhaustedError`)

// setOf is the set of some words, made on first use.
func setOf(words string) func() map[string]bool {
	return sync.OnceValue(func() map[string]bool {
		m := map[string]bool{}
		for _, w := range strings.Fields(words) {
			m[w] = true
		}
		return m
	})
}

// exception is a failure in the form that clients rebuild it from. A class they
// do not know travels as a CloudError that names it.
func exception(e api.ErrorRecord) pickle.Dict {
	kind, given := e.Type, e.Attributes
	c, special := classes()[kind]
	switch {
	case special:
	case plainClasses()[kind]:
		c = plainClass
	default:
		kind, c = "CloudError", classes()["CloudError"]
		given = map[string]any{"error_type": e.Type}
	}
	message := e.Message
	if e.Hint != "" {
		message += "\n" + e.Hint // such clients have no other place for it
	}
	args := pickle.Tuple{}
	if c.message {
		args = append(args, message)
	}
	attributes := pickle.Dict{}
	for _, a := range c.attributes {
		v, ok := given[a.name]
		if !ok || v == nil {
			v = a.none
		}
		if v == (theMessage{}) {
			v = message
		}
		attributes = append(attributes, pickle.Entry{Key: a.name, Value: v})
	}
	return pickle.Dict{
		{Key: "type", Value: kind},
		{Key: "message", Value: message},
		{Key: "args", Value: args},
		{Key: "attributes", Value: attributes},
		{Key: "stacktrace", Value: nil},
	}
}

// pickledException is exception as base64 of its pickle, with what only a pickle
// can say put in: statuses as members of the clients' enumeration, and no
// handles, which would tie a failure to the client's version.
func pickledException(e api.ErrorRecord) (string, error) {
	d := exception(e)
	for i := range d {
		attributes, ok := d[i].Value.(pickle.Dict)
		if !ok {
			continue
		}
		for j, a := range attributes {
			switch a.Key {
			case "cluster_status":
				if s, ok := a.Value.(string); ok {
					attributes[j].Value = clusterStatusEnum(api.ClusterStatus(s))
				}
			case "handle":
				attributes[j].Value = nil
			}
		}
	}
	return pickle.Base64(d)
}

// exceptionJSON is exception as JSON, for the few routes that fail at once.
func exceptionJSON(e api.ErrorRecord) map[string]any {
	return jsonDict(exception(e))
}

func jsonDict(d pickle.Dict) map[string]any {
	m := make(map[string]any, len(d))
	for _, e := range d {
		switch v := e.Value.(type) {
		case pickle.Dict:
			m[e.Key] = jsonDict(v)
		case pickle.Tuple:
			m[e.Key] = []any(v)
		default:
			m[e.Key] = v
		}
	}
	return m
}

// errorRecord is err as it is asked to clients. What is no [api.Error] is a
// RuntimeError with its text.
func errorRecord(err error) api.ErrorRecord {
	if e, ok := errors.AsType[*api.Error](err); ok {
		message := e.Message
		if message == "" {
			message = err.Error()
		}
		kind := e.Type
		if kind == "" {
			kind = api.ErrRuntime
		}
		return api.ErrorRecord{Type: kind, Message: message, Attributes: plain(e.Attributes), Hint: e.Hint, Details: e.Details}
	}
	return api.ErrorRecord{Type: api.ErrRuntime, Message: err.Error()}
}

// plain turns attributes of any Go type into what JSON would make of them.
func plain(m map[string]any) map[string]any {
	if len(m) == 0 {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil // attributes are a courtesy; the message is what counts
	}
	var out map[string]any
	if decodeNumbers(b, &out) != nil {
		return nil
	}
	return out
}

func clusterStatusEnum(s api.ClusterStatus) any {
	switch s {
	case api.ClusterInit, api.ClusterUp, api.ClusterStopped, api.ClusterAutostopping, api.ClusterPending:
		return pickle.Call{Func: pickle.Global{Module: "sky.utils.status_lib", Name: "ClusterStatus"}, Args: pickle.Tuple{string(s)}}
	}
	return nil
}
