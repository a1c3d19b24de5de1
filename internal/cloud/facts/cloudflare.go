package facts

var cloudflare = Cloud{Name: "cloudflare", Display: "Cloudflare", StoresOnly: true, Schemes: []string{"r2"}, StoreFiles: []string{".cloudflare/r2.credentials", ".cloudflare/accountid"}}
