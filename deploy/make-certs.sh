#!/usr/bin/env bash
# Creates a CA and certificates that it signs, for testing TLS.
#   deploy/make-certs.sh DIR [HOST...]                one certificate for all tasks: cert.pem, key.pem
#   deploy/make-certs.sh DIR --task TASK [HOST...]    a certificate for TASK only: worker/3 gives worker-3.pem,
#                                                     worker-3.key; TASK: ps/0, worker/3, chief, evaluator, operator;
#                                                     without an index: all tasks of that job. See docs/security.md
# HOST: a host name or an IP address of a task in the cluster; localhost, 127.0.0.1 and ::1 are always included.
# Also creates ca.pem and ca.key in DIR; only the owner can read the keys. If DIR already has a CA, it signs a new
# certificate: this renews an old one, also while tasks run. Prints the flags for the tasks.
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

task='' for_task='' hosts=()
while (($#)); do
  case $1 in
    --task)
      task=${2-} for_task=yes
      shift
      ;;
    --task=*) task=${1#--task=} for_task=yes ;;
    -*)
      usage >&2
      exit 2
      ;;
    *) hosts+=("$1") ;;
  esac
  [[ $# -eq 0 ]] || shift
done

names=
for host in localhost 127.0.0.1 ::1 ${hosts[@]+"${hosts[@]}"}; do
  if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then kind=IP; else kind=DNS; fi
  names+=${names:+,}$kind:$host
done

subject="Cairn task" cert=cert.pem key=key.pem
if [[ $for_task ]]; then
  if ! [[ $task =~ ^(ps|worker|chief|evaluator|operator)(/[0-9]+)?$ ]]; then
    echo "${BASH_SOURCE[0]##*/}: --task: '$task' is none of ps, worker, chief, evaluator, operator, or one with its index: worker/3" >&2
    exit 2
  fi
  subject=${task/\//\\/} cert=${task/\//-}.pem key=${task/\//-}.key
  names+=,URI:cairn:$task
fi

# Creates a key and a certificate. Shows the output of openssl only if it fails.
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
make -keyout "$new/$key" -out "$new/$cert" -days $cert_days -subj "/CN=$subject" \
  -CA "$directory/ca.pem" -CAkey "$directory/ca.key" \
  -addext basicConstraints=critical,CA:FALSE -addext "subjectAltName=$names" \
  -addext extendedKeyUsage=serverAuth,clientAuth
chmod 644 "$new/$cert"
mv "$new/$key" "$new/$cert" "$directory"
echo "--tls_cert $directory/$cert --tls_key $directory/$key --tls_ca $directory/ca.pem"
