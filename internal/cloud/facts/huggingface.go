package facts

var huggingface = Cloud{Name: "huggingface", Display: "HuggingFace", StoresOnly: true, Schemes: []string{"hf"}, StoreFiles: []string{".cache/huggingface/token"}}
