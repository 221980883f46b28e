// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificate of the API server and of everybody who comes to it with one.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pemOf("EC PRIVATE KEY", der), err
}

func template(name string, groups []string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(240 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, err
}

func newAuthority() (*authority, error) {
	key, _, err := newKey()
	if err != nil {
		return nil, err
	}
	want, err := template("rig", nil)
	if err != nil {
		return nil, err
	}
	want.IsCA, want.BasicConstraintsValid, want.KeyUsage = true, true, want.KeyUsage|x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, want, want, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{key, cert, pemOf("CERTIFICATE", der)}, err
}

// issue makes a certificate: of a server if names are given, else of a client.
func (a *authority) issue(name string, groups []string, names ...string) (cert, key []byte, err error) {
	private, key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	want, err := template(name, groups)
	if err != nil {
		return nil, nil, err
	}
	want.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(names) > 0 {
		want.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		want.DNSNames, want.IPAddresses = names, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, want, a.cert, &private.PublicKey, a.key)
	return pemOf("CERTIFICATE", der), key, err
}

// writeKeys leaves in dir what the API server and the controller manager are started with.
func (a *authority) writeKeys(dir string) error {
	server, serverKey, err := a.issue("kube-apiserver", nil, "localhost", "kubernetes", "kubernetes.default.svc")
	if err != nil {
		return err
	}
	tokens, tokensKey, err := newKey()
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&tokens.PublicKey)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"ca.pem": a.pem, "server.pem": server, "server.key": serverKey,
		"tokens.key": tokensKey, "tokens.pub": pemOf("PUBLIC KEY", public),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
