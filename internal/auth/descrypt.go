package auth

// The DES-based crypt of old Unix systems, which Go's crypto/des cannot compute
// because the salt changes the cipher. It is only ever used to check hashes that
// exist; new ones are bcrypt. Bits are kept one a byte: slow, short, and as the
// standard prints its tables.

const crypt64 = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// desCrypt is the hash of a password's first eight characters with a salt of
// two.
func desCrypt(password, salt string) string {
	var key [64]byte
	for i := 0; i < len(password) && i < 8; i++ {
		for j := range 7 {
			key[8*i+j] = password[i] >> (6 - j) & 1
		}
	}
	e := desE
	for i := range 2 { // each bit of the salt swaps two entries of E
		v := index64(salt[i])
		for j := range 6 {
			if v>>j&1 == 1 {
				e[6*i+j], e[6*i+j+24] = e[6*i+j+24], e[6*i+j]
			}
		}
	}
	keys := desKeys(key)
	block := make([]byte, 66) // two more zeroes: hashes are written six bits a letter
	for range 25 {
		desBlock(block[:64], &keys, &e)
	}
	out := []byte(salt[:2])
	for i := 0; i < 66; i += 6 {
		v := 0
		for _, b := range block[i : i+6] {
			v = v<<1 | int(b)
		}
		out = append(out, crypt64[v])
	}
	return string(out)
}

func index64(c byte) int {
	for i := range len(crypt64) {
		if crypt64[i] == c {
			return i
		}
	}
	return 0
}

// desKeys are the sixteen keys of the rounds.
func desKeys(key [64]byte) (keys [16][48]byte) {
	var cd [56]byte
	for i, p := range desPC1 {
		cd[i] = key[p-1]
	}
	for round := range keys {
		turns := 2
		if round == 0 || round == 1 || round == 8 || round == 15 {
			turns = 1
		}
		for range turns {
			for _, half := range [][]byte{cd[:28], cd[28:]} {
				first := half[0]
				copy(half, half[1:])
				half[27] = first
			}
		}
		for i, p := range desPC2 {
			keys[round][i] = cd[p-1]
		}
	}
	return keys
}

// desBlock encrypts in place.
func desBlock(block []byte, keys *[16][48]byte, e *[48]byte) {
	var lr [64]byte
	for i, p := range desIP {
		lr[i] = block[p-1]
	}
	l, r := [32]byte(lr[:32]), [32]byte(lr[32:])
	for round := range keys {
		var mixed [32]byte
		for box := range 8 {
			var in [6]byte
			for i := range in {
				at := 6*box + i
				in[i] = r[e[at]-1] ^ keys[round][at]
			}
			row, column := in[0]<<1|in[5], in[1]<<3|in[2]<<2|in[3]<<1|in[4]
			v := desS[box][16*int(row)+int(column)]
			for i := range 4 {
				mixed[4*box+i] = v >> (3 - i) & 1
			}
		}
		next := l
		for i, p := range desP {
			next[i] ^= mixed[p-1]
		}
		l, r = r, next
	}
	copy(lr[:32], r[:])
	copy(lr[32:], l[:])
	for i, p := range desIP {
		block[p-1] = lr[i] // the last permutation undoes the first
	}
}

var desIP = [64]byte{
	58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6, 64, 56, 48, 40, 32, 24, 16, 8,
	57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61, 53, 45, 37, 29, 21, 13, 5, 63, 55, 47, 39, 31, 23, 15, 7,
}

var desE = [48]byte{
	32, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9, 8, 9, 10, 11, 12, 13, 12, 13, 14, 15, 16, 17,
	16, 17, 18, 19, 20, 21, 20, 21, 22, 23, 24, 25, 24, 25, 26, 27, 28, 29, 28, 29, 30, 31, 32, 1,
}

var desP = [32]byte{
	16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
}

var desPC1 = [56]byte{
	57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36,
	63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
}

var desPC2 = [48]byte{
	14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
	41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
}

var desS = [8][64]byte{
	{14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8,
		4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13},
	{15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5,
		0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9},
	{10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1,
		13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12},
	{7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9,
		10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14},
	{2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6,
		4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3},
	{12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8,
		9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13},
	{4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6,
		1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12},
	{13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2,
		7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11},
}
