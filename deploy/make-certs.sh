#!/usr/bin/env bash
# Certificates for trying TLS: a CA, and one certificate of it for all tasks.
#   deploy/make-certs.sh DIR [HOST...]   HOST: a name or an IP address by which the cluster calls a server, beside
#                                        localhost, 127.0.0.1 and ::1, which the certificate always names
# Makes in DIR: ca.pem, ca.key, cert.pem, key.pem; the keys are for their owner alone. Where DIR has a CA already,
# it signs another certificate: so an old one is renewed, also while tasks run. Prints the flags.
set -euo pipefail

readonly ca_days=3650 cert_days=365

usage() { sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

case "${1-}" in
  -h | --help)
    usage
    exit 0
    ;;
  "" | -*)
    usage >&2
    exit 2
    ;;
esac
directory=$1
shift

names=
for host in localhost 127.0.0.1 ::1 "$@"; do
  if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then kind=IP; else kind=DNS; fi
  names+=${names:+,}$kind:$host
done

# A key and a certificate; what openssl says is shown when it fails.
make() {
  local said
  said=$(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -batch "$@" 2>&1) || {
    echo "$said" >&2
    exit 1
  }
}

umask 077
mkdir -p "$directory"
new=$(mktemp -d "$directory/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
if [[ ! -e $directory/ca.pem ]]; then
  make -keyout "$new/ca.key" -out "$new/ca.pem" -days $ca_days -subj "/CN=Cairn trial CA" \
    -addext keyUsage=critical,keyCertSign
  chmod 644 "$new/ca.pem"
  mv "$new/ca.key" "$new/ca.pem" "$directory"
fi
make -keyout "$new/key.pem" -out "$new/cert.pem" -days $cert_days -subj "/CN=Cairn task" \
  -CA "$directory/ca.pem" -CAkey "$directory/ca.key" \
  -addext basicConstraints=critical,CA:FALSE -addext "subjectAltName=$names" \
  -addext extendedKeyUsage=serverAuth,clientAuth
chmod 644 "$new/cert.pem"
mv "$new/key.pem" "$new/cert.pem" "$directory"
echo "--tls_cert $directory/cert.pem --tls_key $directory/key.pem --tls_ca $directory/ca.pem"
