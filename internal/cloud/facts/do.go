package facts

import "github.com/skypilot-go/sky/internal/lazyregexp"

var do = Cloud{
	Name: "do", Display: "DO", Aliases: []string{"digitalocean"},
	Prices: &Prices{Hosted: true},
	Lacks:  []Feature{Spot, DiskTier, NetTier, LocalDisk},
	Label: func(key, value string) string {
		if !doTag.MatchString(key+":"+value) || key == "" {
			return "key and value have letters, digits, dashes, colons and underscores, and 254 of them at most"
		}
		return ""
	},
	Settings: onlyIdentity("DigitalOcean"),
}

var doTag = lazyregexp.New(`^[A-Za-z0-9:_-]{1,255}$`)
