// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"time"
)

const (
	authorityLasts = 10 * 365 * 24 * time.Hour
	servingLasts   = 90 * 24 * time.Hour
	// Clocks of nodes differ.
	earlier = time.Hour

	keyAuthority    = "ca.crt" // all that are still valid, the current one first
	keyAuthorityKey = "ca.key"
	keyServing      = "tls.crt"
	keyServingKey   = "tls.key"
)

// renew returns what the secret should hold: what it holds, if that is good for the names and for another third of its
// time; else a new certificate, and a new authority if that is needed. The earlier authorities stay in the bundle until
// they end, so that the API server trusts the old certificate and the new one meanwhile.
func renew(have map[string][]byte, names []string, now time.Time) (map[string][]byte, bool, error) {
	authority, key := parse(have[keyAuthority], have[keyAuthorityKey])
	bundle := have[keyAuthority]
	fresh := authority == nil || soon(authority, now)
	if fresh {
		var err error
		var text []byte
		if authority, key, text, err = newAuthority(now); err != nil {
			return nil, false, err
		}
		bundle = append(text, stillValid(have[keyAuthority], now)...)
	}
	serving, _ := parse(have[keyServing], have[keyServingKey])
	if !fresh && serving != nil && !soon(serving, now) && covers(serving, names) &&
		serving.CheckSignatureFrom(authority) == nil {
		return have, false, nil
	}
	cert, certKey, err := issue(authority, key, names, now)
	if err != nil {
		return nil, false, err
	}
	keyText, err := encodeKey(key)
	if err != nil {
		return nil, false, err
	}
	return map[string][]byte{keyAuthority: bundle, keyAuthorityKey: keyText, keyServing: cert, keyServingKey: certKey},
		true, nil
}

func soon(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore)/3)) || now.Before(c.NotBefore)
}

func covers(c *x509.Certificate, names []string) bool {
	for _, name := range names {
		if c.VerifyHostname(name) != nil {
			return false
		}
	}
	return true
}

// parse returns the first certificate and its key; nil if either is missing, broken or not the other's.
func parse(cert, key []byte) (*x509.Certificate, *ecdsa.PrivateKey) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, nil
	}
	c, err := x509.ParseCertificate(pair.Certificate[0])
	k, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, nil
	}
	return c, k
}

func stillValid(bundle []byte, now time.Time) []byte {
	var out bytes.Buffer
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(c.NotAfter) {
			_ = pem.Encode(&out, block)
		}
	}
	return out.Bytes()
}

func newAuthority(now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	template, err := newTemplate("penstock-webhook-ca", now, authorityLasts)
	if err != nil {
		return nil, nil, nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, nil, err
	}
	c, err := x509.ParseCertificate(der)
	return c, key, encodeCert(der), err
}

func issue(authority *x509.Certificate, by *ecdsa.PrivateKey, names []string, now time.Time) (cert, key []byte,
	err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return nil, nil, errors.New("a certificate without names")
	}
	template, err := newTemplate(names[0], now, servingLasts)
	if err != nil {
		return nil, nil, err
	}
	template.DNSNames = names
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, own.Public(), by)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(own)
	return encodeCert(der), key, err
}

func newTemplate(name string, now time.Time, lasts time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-earlier),
		NotAfter: now.Add(lasts)}, nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
