// Package awsfake is the part of AWS that sky uses, as a server for tests:
// EC2, IAM, STS and Service Quotas over HTTP, written from their public API
// references. It behaves as they do where that matters to a caller: tokens are
// idempotent, lists have pages and lag behind, machines take time to change,
// zones fill up, quotas end, spot machines are taken back, calls are throttled,
// refused, lost on the way and answered wrongly.
package awsfake

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The credentials of the only account.
const (
	AccessKey = "AKIAFAKEFAKEFAKEFAKE"
	SecretKey = "fake/secret/key"
	Account   = "123456789012"
)

// Cloud is the whole of AWS. Its zero value is not usable; see [New].
type Cloud struct {
	Boot time.Duration // of machines that start
	End  time.Duration // of machines that stop or end
	Page int           // entries of a list's page at most
	// EmptyPages begins every list with a page that has no entries.
	EmptyPages bool
	// Hardware is what stands behind instances; nil: nothing, they are records
	// that change by themselves.
	Hardware Hardware

	mu           sync.Mutex
	sessions     int // made by GetSessionToken
	serial       int
	instances    []*instance
	groups       []*group
	tokens       map[string]run
	profiles     map[string][]string // roles by instance profile
	policies     map[string][]string // attached, by role
	roles        map[string]bool
	quotas       map[string]float64 // by region and code
	parameters   map[string]string  // of Systems Manager, by region and name
	left         map[offer]int      // how many more there are; absent: plenty
	allowed      map[offer]int      // how many more the account may have; absent: plenty
	skew         time.Duration
	hide         int // lists in which new machines are missing
	lose         map[string]int
	lie          map[string]string
	placements   map[string]*placement // by region and name
	reservations []*Reservation
	denied       map[string]bool // "ec2:RunInstances"
	odd          map[string]*oddity
	sealed       bool // refusals of EC2 say why in a sealed form only
	mode         mode
	restored     chan struct{}
	pages        map[string]*rest // by token
	plague       func(service, action string) Trouble
	unsettled    int            // calls that do not know what is new
	young        map[string]int // calls for which a role or profile is still unknown
	volumes      []*volume
	images       []*image
	snapshots    []*snapshot
	nics         []*nic
	closed       map[string]string // regions that let nobody in, with the code that they say
	unsupported  map[offer]bool    // what a zone does not have at all
	broken       *reasonXML        // why new machines end at once
	private      bool              // there are private subnets, too
	drift        time.Duration     // of the clock by which signatures are judged
}

type mode int

const (
	fine mode = iota
	throttling
	refusing
	forbidding
	cut
	hanging
)

type offer struct {
	zone, machine string
	spot          bool
}

type run struct {
	parameters string
	ids        []string
}

type instance struct {
	id, region, zone, machine string
	subnet, vpc               string
	spot                      bool
	tags                      map[string]string
	index                     int
	launched, created         time.Time
	state, target             string // target after due
	due                       time.Time
	arrived                   bool // the hardware is in the target state
	reasonCode, reason        string
	hidden                    int
	endsWhenOff               bool
	takenBack                 time.Time
	ip                        int
	address                   string // on the hardware; "": made up from ip
	userData, image           string
	placement                 string
	held                      *Reservation
	disk                      string   // type, IOPS and throughput
	kinds                     []string // of its network interfaces
	before                    string   // the state that lists still show
	behind                    int      // so many times
	tagsBefore                map[string]string
	tagsBehind                int
}

type group struct {
	id, name, region, vpc string
	tags                  map[string]string
	rules                 []rule
	outward               bool // its members may send to each other by a rule of its own
	unknown               int  // to so many calls
}

type rule struct {
	protocol, cidr, from string // from: a group
	low, high            int
}

// Regions and their zones: names, and the ids that price lists use.
var regions = []region{
	{"us-east-1", []zone{{"us-east-1a", "use1-az1"}, {"us-east-1b", "use1-az2"}, {"us-east-1c", "use1-az4"}}},
	{"us-west-2", []zone{{"us-west-2a", "usw2-az1"}, {"us-west-2b", "usw2-az2"}, {"us-west-2c", "usw2-az3"}}},
	{"eu-central-1", []zone{{"eu-central-1a", "euc1-az2"}, {"eu-central-1b", "euc1-az3"}}},
}

type zone struct{ name, id string }

type region struct {
	name  string
	zones []zone
}

// machines are the types that there are.
var machines = []string{"m6i.large", "m6i.xlarge", "m6i.2xlarge", "g4dn.xlarge", "g5.xlarge", "p3.2xlarge", "p4d.24xlarge", "p5.48xlarge", "p6-b300.48xlarge", "t3.micro", "t4g.small", "c6i.large"}

// New returns a cloud in which nothing is rented.
func New() *Cloud {
	return &Cloud{
		Page: 50, tokens: map[string]run{}, profiles: map[string][]string{}, roles: map[string]bool{}, quotas: map[string]float64{},
		policies: map[string][]string{}, placements: map[string]*placement{}, denied: map[string]bool{}, odd: map[string]*oddity{}, left: map[offer]int{}, allowed: map[offer]int{}, lose: map[string]int{}, lie: map[string]string{},
		restored: make(chan struct{}), pages: map[string]*rest{}, young: map[string]int{}, closed: map[string]string{}, unsupported: map[offer]bool{},
	}
}

func (c *Cloud) now() time.Time { return time.Now().Add(c.skew) }

func (c *Cloud) next(prefix string) string {
	c.serial++
	return fmt.Sprintf("%s-%017x", prefix, c.serial)
}

// fault is an answer that says no.
type fault struct {
	status  int
	code    string
	message string
}

func refuse(status int, code, format string, args ...any) *fault {
	return &fault{status, code, fmt.Sprintf(format, args...)}
}

// looking are the calls that change nothing.
var looking = regexp.MustCompile(`^(Describe|Get|List)`)

var scope = regexp.MustCompile(`Credential=([^/]*)/\d+/([^/]*)/([^/]*)/aws4_request`)

// ServeHTTP answers a call of any service: which one and in which region is in
// the signature's scope.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := scope.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		http.Error(w, "the call is not signed", http.StatusForbidden)
		return
	}
	key, region, service := m[1], m[2], m[3]
	c.mu.Lock()
	now, restored := c.mode, c.restored
	c.mu.Unlock()
	switch now {
	case cut:
		panic(http.ErrAbortHandler)
	case hanging:
		select {
		case <-restored:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	json := service == "servicequotas" || service == "ssm"
	action := ""
	if _, action, _ = strings.Cut(r.Header.Get("X-Amz-Target"), "."); !json {
		if err := r.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		action = r.PostForm.Get("Action")
	}
	trouble := c.trouble(service, action)
	if trouble == Broken {
		panic(http.ErrAbortHandler)
	}
	if by := c.drifted(); by != 0 {
		w.Header().Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
	}
	if json {
		if trouble == Busy {
			now = throttling
		}
		c.serveJSON(w, r, region, now, key)
		return
	}
	if trouble == Busy {
		now = throttling
	}
	f := c.admit(now, key, service, action)
	if f == nil {
		f = c.inTime(service, r.Header.Get("X-Amz-Date"))
	}
	if f == nil && trouble == Failing {
		f = refuse(http.StatusInternalServerError, "InternalError", "An internal error has occurred.")
	}
	var answer any
	lost := false
	if f == nil {
		c.mu.Lock()
		c.settle()
		answer, f = c.answer(service, region, action, r.PostForm)
		if n := c.lose[action]; f == nil && n > 0 {
			c.lose[action] = n - 1
			lost = true
		}
		c.mu.Unlock()
	}
	if lost || trouble == Lost {
		panic(http.ErrAbortHandler)
	}
	if trouble == Exhausted {
		f = refuse(http.StatusServiceUnavailable, "Unavailable", "The server is overloaded and can't handle the request.")
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	if f != nil {
		writeFault(w, service, f)
		return
	}
	var whole bytes.Buffer // an answer goes out in one piece
	fmt.Fprintf(&whole, `<?xml version="1.0" encoding="UTF-8"?><%sResponse xmlns=%q>`, action, "http://ec2.amazonaws.com/doc/2016-11-15/")
	if service != "ec2" {
		fmt.Fprintf(&whole, "<%sResult>", action)
	} else {
		fmt.Fprint(&whole, "<requestId>req-1</requestId>")
	}
	var text bytes.Buffer
	if err := xml.NewEncoder(&text).EncodeElement(answer, xml.StartElement{Name: xml.Name{Local: "root"}}); err != nil {
		panic(err)
	}
	whole.Write(bytes.TrimSuffix(bytes.TrimPrefix(text.Bytes(), []byte("<root>")), []byte("</root>")))
	if service != "ec2" {
		fmt.Fprintf(&whole, "</%sResult><ResponseMetadata><RequestId>req-1</RequestId></ResponseMetadata>", action)
	}
	fmt.Fprintf(&whole, "</%sResponse>", action)
	w.Header().Set("Content-Length", strconv.Itoa(whole.Len()))
	w.Write(whole.Bytes())
}

func writeFault(w http.ResponseWriter, service string, f *fault) {
	w.WriteHeader(f.status)
	var message strings.Builder
	xml.EscapeText(&message, []byte(f.message))
	if service == "ec2" {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>req-1</RequestID></Response>`, f.code, message.String())
		return
	}
	fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>req-1</RequestId></ErrorResponse>`, f.code, message.String())
}

// admit is what AWS looks at before the call itself.
func (c *Cloud) admit(now mode, key, service, action string) *fault {
	switch {
	case now == throttling && service == "ec2":
		return refuse(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded.")
	case now == throttling:
		return refuse(http.StatusBadRequest, "Throttling", "Rate exceeded")
	case (now == refusing || key != AccessKey) && service == "ec2":
		return refuse(http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials")
	case now == refusing || key != AccessKey:
		return refuse(http.StatusForbidden, "InvalidClientTokenId", "The security token included in the request is invalid.")
	case (now == forbidding && !looking.MatchString(action) || c.denies(service+":"+action)) && service == "ec2":
		if c.sealed {
			return refuse(http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation. Encoded authorization failure message: %s", action)
		}
		return refuse(http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation. User: arn:aws:iam::%s:user/u is not authorized to perform: ec2:%s on resource: * because no identity-based policy allows the action", Account, action)
	case now == forbidding && !looking.MatchString(action) && !asking[action] || c.denies(service+":"+action):
		return refuse(http.StatusForbidden, "AccessDenied", "User: arn:aws:iam::%s:user/u is not authorized to perform: %s:%s", Account, service, action)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.odd[action]; o != nil && o.left > 0 {
		o.left--
		o.refused++
		return refuse(http.StatusBadRequest, o.code, "No.")
	}
	return nil
}

// asking are calls that change nothing whatever their names.
var asking = map[string]bool{"SimulatePrincipalPolicy": true, "DecodeAuthorizationMessage": true}

func (c *Cloud) denies(action string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.denied[action]
}

// simulate says what policies allow.
func (c *Cloud) simulate(f url.Values) (answer any, no *fault) {
	type one struct{ EvalActionName, EvalDecision string }
	var out struct {
		EvaluationResults struct {
			Member []one `xml:"member"`
		}
		IsTruncated bool
		Marker      string `xml:",omitempty"`
	}
	var all []one
	for _, action := range indexed(f, "ActionNames.member") {
		decision := "allowed"
		if c.denied[action] || c.mode == forbidding && !looking.MatchString(strings.TrimPrefix(action, "iam:")) {
			decision = "implicitDeny"
		}
		all = append(all, one{action, decision})
	}
	out.EvaluationResults.Member, out.Marker, no = part(c, "SimulatePrincipalPolicy", hash(f, "Marker"), f.Get("Marker"), c.Page, all)
	out.IsTruncated = out.Marker != ""
	return out, no
}

func (c *Cloud) answer(service, at, action string, f url.Values) (any, *fault) {
	switch service {
	case "sts":
		if action == "GetCallerIdentity" {
			return struct{ Arn, UserId, Account string }{"arn:aws:iam::" + Account + ":user/u", "AIDAFAKE", Account}, nil
		}
		if action == "GetSessionToken" {
			seconds, err := strconv.Atoi(f.Get("DurationSeconds"))
			if err != nil || seconds < 900 || seconds > 129600 {
				return nil, refuse(http.StatusBadRequest, "ValidationError", "The requested DurationSeconds exceeds what is allowed.")
			}
			c.sessions++
			var out struct {
				Credentials struct{ AccessKeyId, SecretAccessKey, SessionToken, Expiration string }
			}
			out.Credentials.AccessKeyId, out.Credentials.SecretAccessKey = fmt.Sprint("ASIAFAKE", c.sessions), "session-secret"
			out.Credentials.SessionToken, out.Credentials.Expiration = "session-token", time.Now().Add(time.Duration(seconds)*time.Second).UTC().Format(time.RFC3339)
			return out, nil
		}
		if action == "DecodeAuthorizationMessage" {
			told := fmt.Sprintf(`{"allowed":false,"explicitDeny":false,"context":{"principal":{"id":"AIDAFAKE"},"action":"ec2:%s","resource":"arn:aws:ec2:%s:%s:instance/*"}}`,
				f.Get("EncodedMessage"), at, Account)
			return struct{ DecodedMessage string }{told}, nil
		}
	case "iam":
		if action == "SimulatePrincipalPolicy" {
			return c.simulate(f)
		}
		return c.iam(action, f)
	case "ec2":
		if zonesOf(at) == nil {
			return nil, refuse(http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials")
		}
		switch code := c.closed[at]; code {
		case "":
		case "UnauthorizedOperation":
			return nil, refuse(http.StatusForbidden, code, "You are not authorized to perform this operation. User: arn:aws:iam::%s:user/u is not authorized to perform: ec2:%s with an explicit deny in a service control policy", Account, action)
		case "AuthFailure":
			return nil, refuse(http.StatusUnauthorized, code, "AWS was not able to validate the provided access credentials")
		default:
			return nil, refuse(http.StatusForbidden, code, "You are not subscribed to this service. Please go to http://aws.amazon.com to subscribe.")
		}
		if no := wellFormed(action, f); no != nil {
			return nil, no
		}
		if f.Get("DryRun") == "true" {
			return nil, refuse(http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
		}
		return c.ec2(at, action, f)
	}
	return nil, refuse(http.StatusBadRequest, "InvalidAction", "The action %s is not valid for this web service.", action)
}

// tooYoung reports that a call does not know a new role or profile yet. The
// caller holds mu.
func (c *Cloud) tooYoung(what string) bool {
	left := c.young[what]
	defer func() { c.young[what] = left }()
	return unknown(&left)
}

func (c *Cloud) drifted() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drift
}

// tolerance is how far clocks may be apart.
const tolerance = 5 * time.Minute

// inTime refuses what was signed at another time.
func (c *Cloud) inTime(service, date string) *fault {
	now := time.Now().Add(c.drifted())
	signed, err := time.Parse("20060102T150405Z", date)
	switch {
	case err == nil && now.Sub(signed).Abs() <= tolerance:
		return nil
	case service == "ec2" && now.After(signed):
		return refuse(http.StatusBadRequest, "RequestExpired", "Request has expired.")
	case service == "ec2":
		return refuse(http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials")
	}
	return refuse(http.StatusForbidden, "SignatureDoesNotMatch", "Signature expired: %s is now earlier than %s (%s - 5 min.)", date, now.UTC().Format("20060102T150405Z"), now.UTC().Format("20060102T150405Z"))
}

// serveJSON answers Service Quotas, and Systems Manager for parameters.
func (c *Cloud) serveJSON(w http.ResponseWriter, r *http.Request, region string, now mode, key string) {
	fail := func(status int, code, message string) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.Header().Set("X-Amzn-ErrorType", code)
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": message})
	}
	switch {
	case now == throttling:
		fail(http.StatusBadRequest, "TooManyRequestsException", "Rate exceeded")
		return
	case now == refusing || key != AccessKey:
		fail(http.StatusBadRequest, "UnrecognizedClientException", "The security token included in the request is invalid.")
		return
	}
	var in struct{ QuotaCode, ServiceCode, Name string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		fail(http.StatusBadRequest, "SerializationException", err.Error())
		return
	}
	if r.Header.Get("X-Amz-Target") == "AmazonSSM.GetParameter" {
		c.mu.Lock()
		v, ok := c.parameters[region+" "+in.Name]
		c.mu.Unlock()
		if !ok {
			fail(http.StatusBadRequest, "ParameterNotFound", "")
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		json.NewEncoder(w).Encode(map[string]any{"Parameter": map[string]any{"Name": in.Name, "Type": "String", "Value": v}})
		return
	}
	c.mu.Lock()
	v, ok := c.quotas[region+" "+in.QuotaCode]
	c.mu.Unlock()
	if !ok {
		v = 1152
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	json.NewEncoder(w).Encode(map[string]any{"Quota": map[string]any{"QuotaCode": in.QuotaCode, "ServiceCode": in.ServiceCode, "Value": v}})
}
