#!/bin/sh
# Runs when this machine goes down. A machine of Azure that is switched off from inside keeps
# its place and its price, so it asks Azure to take it back. A reboot is none of that.
systemctl list-jobs 2>/dev/null | grep -qE '(poweroff|halt)\.target' || exit 0
metadata() { curl -sf --noproxy '*' --retry 3 --max-time 10 -H Metadata:true "http://169.254.169.254/metadata/$1"; }
id=$(metadata 'instance/compute/resourceId?api-version=2021-02-01&format=text')
tags=$(metadata 'instance/compute/tags?api-version=2021-02-01&format=text')
case $(metadata 'instance/compute/azEnvironment?api-version=2021-02-01&format=text') in
AzureUSGovernmentCloud) arm=https://management.usgovcloudapi.net ;;
AzureChinaCloud) arm=https://management.chinacloudapi.cn ;;
*) arm=https://management.azure.com ;;
esac
token() { metadata "identity/oauth2/token?api-version=2018-02-01&resource=$arm$1" | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p'; }
token=$(token '&msi_res_id=@IDENTITY@')
[ "$token" ] || token=$(token) # on a copy of the disk: the machine has another identity, and no other one
ask() { curl -sf --retry 5 --retry-all-errors --max-time 30 -X "$1" -H 'Content-Length: 0' -H "Authorization: Bearer $token" "$arm$2"; }
case ";$tags;" in
*';sky-ends-when-off:true;'*)
	case "@ALONE@;;$tags;" in
	'true;'*';sky-rank:0;'*) ask DELETE "${id%%/providers/*}?api-version=@RESOURCES@" ;; # the head: the cluster with all it has
	*) ask DELETE "$id?api-version=@COMPUTE@" ;;
	esac
	;;
*) ask POST "$id/deallocate?api-version=@COMPUTE@" ;;
esac
