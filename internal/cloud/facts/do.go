package facts

var do = Cloud{Name: "do", Display: "DO", Aliases: []string{"digitalocean"}}
