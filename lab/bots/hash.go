package bots

// foldHash adds the next feed's hash to that of those before it, as the server does.
func foldHash(h, next uint32) uint32 { return h*16777619 ^ next }
