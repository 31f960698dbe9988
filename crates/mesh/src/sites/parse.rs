//! Reads a sites file: tables become items, and every name that an item uses is looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use toml::de::DeTable;

use super::error::{Problem, SitesError, SitesErrors};
use super::limits::{MAX_BOTTLENECKS_A_PLACE, MAX_CONCURRENT_LOADS, MAX_FILE_BYTES, MAX_ITEMS};
use super::maintenance::{Maintenance, MaintenanceScope};
use super::model::{
    Audience, AudienceKind, Bottleneck, Circuit, Contact, Host, HostKind, HostPlace, HubSettings, Operator, Role, Site,
    Sites,
};
use super::names::{KnownNames, Names, items};
use super::parse_tests::{read_groups, read_tests};
use super::reader::{Located, Problems, Table};

impl Sites {
    /// Parses a sites file. Returns all problems of the file, not only the first one.
    pub fn parse(text: &str) -> Result<Sites, SitesErrors> {
        if text.len() > MAX_FILE_BYTES {
            return Err(at_start(Problem::TooLong(text.len())));
        }
        let mut problems = Problems::new(text);
        let (root, syntax) = DeTable::parse_recoverable(text);
        for error in &syntax {
            problems.add(&error.span().unwrap_or(0..0), Problem::Syntax(error.message().to_owned()));
        }
        if !syntax.is_empty() {
            return Err(SitesErrors::new(problems.into_found()));
        }
        let sites = read_root(Table::new("the file", 0..0, root.get_ref()), &mut problems);
        match sites {
            Some(sites) if problems.is_empty() => Ok(sites),
            _ => Err(SitesErrors::new(problems.into_found())),
        }
    }
}

fn at_start(problem: Problem) -> SitesErrors {
    SitesErrors::new(vec![SitesError { line: 1, column: 1, problem }])
}

fn read_root(mut root: Table, problems: &mut Problems) -> Option<Sites> {
    let name = root.required_name("name", problems);
    let mut known = KnownNames {
        sites: Names::new("site"),
        hosts: Names::new("host"),
        groups: Names::new("group"),
        operators: Names::new("operator"),
        bottlenecks: Names::new("bottleneck"),
        circuits: Names::new("circuit"),
    };
    let sites = read_sites(&mut root, &mut known, problems);
    let operators = read_operators(&mut root, &mut known, problems);
    let bottlenecks = read_bottlenecks(&mut root, &mut known, problems);
    let circuits = read_circuits(&mut root, &mut known, problems);
    let groups = read_groups(&mut root, &mut known, problems);
    let (tests, positions) = read_tests(&mut root, &known, problems);
    let audiences = read_audiences(&mut root, &known, problems);
    let maintenance = read_maintenance(&mut root, &known, problems);
    let hub = root.table("hub", "[hub]", problems).map(|table| read_hub(table, problems)).unwrap_or_default();
    root.finish(problems);
    let name = name?.value;
    let mut host_index = BTreeMap::new();
    let mut site_index = BTreeMap::new();
    for (site, item) in sites.iter().enumerate() {
        site_index.insert(item.name.clone(), site);
        for (host, item) in item.hosts.iter().enumerate() {
            host_index.insert(item.name.clone(), HostPlace { site, host });
        }
    }
    let sites = Sites {
        name,
        sites,
        operators,
        bottlenecks,
        circuits,
        groups,
        tests,
        audiences,
        maintenance,
        hub,
        host_index,
        site_index,
    };
    // Sizes are known only if all names are.
    if problems.is_empty() {
        super::size::check_size(&sites, &positions, problems);
    }
    Some(sites)
}

fn read_sites(root: &mut Table, known: &mut KnownNames, problems: &mut Problems) -> Vec<Site> {
    let tables = items(root, "site", "[[site]]", problems);
    if tables.is_empty() {
        root.note_missing("site");
    }
    let mut addresses = Names::new("address");
    let mut hosts = Vec::new();
    let mut sites = Vec::new();
    for table in tables {
        sites.extend(read_site(table, known, &mut addresses, &mut hosts, problems));
    }
    if hosts.len() > MAX_ITEMS {
        let (count, max) = (hosts.len() as u64, MAX_ITEMS as u64);
        problems.add(&root.span_of("site"), Problem::TooMany { what: "hosts", count, max });
    }
    // Hosts are compared with all sites, also with later ones.
    for HostOfSite { name, site } in hosts {
        // A duplicate site is one problem, not a duplicate host as well.
        let is_duplicate_site = name.value == site && known.hosts.has(&name.value);
        if !is_duplicate_site {
            known.hosts.claim(&name, problems);
        }
        if name.value != site && known.sites.has(&name.value) {
            problems.add(&name.span, Problem::NameOfOtherSite { host: name.value });
        }
    }
    sites
}

/// Keys of a host apart from its name.
const HOST_KEYS: &[&str] = &["address", "kind", "interface", "rate", "dial-only", "stamp-port"];

/// The name of a host with the name of its site.
struct HostOfSite {
    name: Located<String>,
    site: String,
}

fn read_site(
    mut table: Table,
    known: &mut KnownNames,
    addresses: &mut Names,
    hosts: &mut Vec<HostOfSite>,
    problems: &mut Problems,
) -> Option<Site> {
    let name = table.required_name("name", problems);
    if let Some(name) = &name {
        known.sites.claim(name, problems);
    }
    let place = table.text("place", problems).map(|place| place.value);
    let budget = table.bytes("budget", problems);
    let contacts = read_contacts(&mut table, problems);
    let has_hosts = table.has("host");
    let host_tables = table.tables("host", "host of [[site]]", problems);
    // The only host of a site without hosts has the keys of the site.
    let own_host = if has_hosts {
        None
    } else {
        name.as_ref().and_then(|name| read_host(&mut table, name.clone(), name, addresses, problems))
    };
    if name.is_none() {
        table.permit(HOST_KEYS);
    }
    table.finish(problems);
    let name = name?;
    let mut site = Site { name: name.value.clone(), place, budget, contacts, hosts: Vec::new() };
    if let Some(host) = own_host {
        hosts.push(HostOfSite { name: name.clone(), site: name.value.clone() });
        site.hosts.push(host);
    }
    for mut table in host_tables {
        let host_name = table.required_name("name", problems);
        let host = host_name.clone().and_then(|own| read_host(&mut table, own, &name, addresses, problems));
        if host_name.is_none() {
            table.permit(HOST_KEYS);
        }
        if let Some(own) = host_name {
            hosts.push(HostOfSite { name: own, site: name.value.clone() });
        }
        site.hosts.extend(host);
        table.finish(problems);
    }
    Some(site)
}

fn read_host(
    table: &mut Table,
    name: Located<String>,
    site: &Located<String>,
    addresses: &mut Names,
    problems: &mut Problems,
) -> Option<Host> {
    let kind = table.choice("kind", HostKind::CHOICES, problems).unwrap_or(HostKind::Agent);
    let interface = table.name("interface", problems).map(|interface| interface.value);
    let rate = table.rate("rate", problems);
    let dial_only = table.boolean("dial-only", problems).unwrap_or(false);
    let address = read_address(table, "address", problems);
    if let Some(address) = &address {
        addresses.claim(address, problems);
    }
    if address.is_none() && !dial_only && !table.has("address") {
        table.note_missing("address");
    }
    if dial_only && kind != HostKind::Agent {
        let problem = Problem::DialOnlyTarget { host: name.value.clone(), kind: kind.name() };
        problems.add(&table.span_of("dial-only"), problem);
    }
    let stamp_port = table.count("stamp-port", 1..u64::from(u16::MAX) + 1, problems);
    if table.has("stamp-port") && kind != HostKind::Serve {
        let problem = Problem::KeyOfOtherHost { key: "stamp-port", kind: kind.name() };
        problems.add(&table.span_of("stamp-port"), problem);
    }
    let address = address.map(|address| address.value);
    let stamp_port = stamp_port.and_then(|port| u16::try_from(port).ok());
    Some(Host { name: name.value, site: site.value.clone(), address, kind, interface, rate, dial_only, stamp_port })
}

/// Reads a host name or an IP address, with or without a port.
fn read_address(table: &mut Table, key: &'static str, problems: &mut Problems) -> Option<Located<String>> {
    let address = table.text(key, problems)?;
    if is_address(&address.value) {
        return Some(address);
    }
    problems.add(&address.span, Problem::Address { value: address.value });
    None
}

fn is_address(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+');
    if text.parse::<core::net::IpAddr>().is_ok() {
        return true;
    }
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let is_valid = address.parse::<core::net::Ipv6Addr>().is_ok();
        return is_valid && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_host = !host.is_empty() && host.bytes().all(fits) && !host.starts_with('-');
    is_host && port.is_none_or(is_port)
}

fn read_contacts(table: &mut Table, problems: &mut Problems) -> Vec<Contact> {
    let mut contacts = Vec::new();
    for mut table in table.tables("contacts", "contact", problems) {
        let name = table.required_text("name", problems);
        let mail = table.required_text("mail", problems).and_then(|mail| checked_mail(mail, problems));
        let role = table.required_choice("role", Role::CHOICES, problems);
        table.finish(problems);
        if let (Some(name), Some(mail), Some(role)) = (name, mail, role) {
            contacts.push(Contact { name: name.value, mail, role });
        }
    }
    contacts
}

/// Returns a mail address: two parts without spaces, joined by `@`.
fn checked_mail(mail: Located<String>, problems: &mut Problems) -> Option<String> {
    let fits = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "@,;<>\"".contains(c));
    if mail.value.split_once('@').is_some_and(|(user, domain)| fits(user) && fits(domain)) {
        return Some(mail.value);
    }
    problems.add(&mail.span, Problem::Mail { value: mail.value });
    None
}

fn read_operators(root: &mut Table, known: &mut KnownNames, problems: &mut Problems) -> Vec<Operator> {
    let mut operators = Vec::new();
    for mut table in items(root, "operator", "[[operator]]", problems) {
        let name = table.required_name("name", problems);
        let contacts = read_contacts(&mut table, problems);
        table.finish(problems);
        if let Some(name) = name {
            known.operators.claim(&name, problems);
            operators.push(Operator { name: name.value, contacts });
        }
    }
    operators
}

fn read_bottlenecks(root: &mut Table, known: &mut KnownNames, problems: &mut Problems) -> Vec<Bottleneck> {
    let mut bottlenecks = Vec::new();
    let mut uses = BTreeMap::new();
    for mut table in items(root, "bottleneck", "[[bottleneck]]", problems) {
        let name = table.required_name("name", problems);
        let capacity = table.required_rate("capacity", problems);
        let sites = table.names("sites", problems);
        let sites = known.site_names(sites, problems);
        let pairs = table.pairs("pairs", problems);
        let pairs: Vec<_> = pairs.into_iter().filter_map(|pair| known.member_pair(pair, problems)).collect();
        let places = sites.iter().map(|site| [site.clone(), String::new()]).chain(pairs.iter().cloned().map(sorted));
        for place in places.collect::<BTreeSet<_>>() {
            let count = uses.entry(place).or_insert(0_usize);
            *count += 1;
            if *count == MAX_BOTTLENECKS_A_PLACE + 1 {
                let (count, max) = (*count as u64, MAX_BOTTLENECKS_A_PLACE as u64);
                problems.add(&table.span, Problem::TooMany { what: "bottlenecks of one site or pair", count, max });
            }
        }
        let loads = table.count("loads", 1..MAX_CONCURRENT_LOADS + 1, problems).unwrap_or(1);
        if !table.has("sites") && !table.has("pairs") {
            let expected = "sites = […] or pairs = […]";
            problems.add(&table.span, Problem::Alternatives { table: table.name, given: "no traffic", expected });
        }
        table.finish(problems);
        if let Some(name) = &name {
            known.bottlenecks.claim(name, problems);
        }
        if let (Some(name), Some(capacity)) = (name, capacity) {
            bottlenecks.push(Bottleneck { name: name.value, capacity, sites, pairs, loads });
        }
    }
    bottlenecks
}

fn sorted(mut pair: [String; 2]) -> [String; 2] {
    pair.sort();
    pair
}

fn read_circuits(root: &mut Table, known: &mut KnownNames, problems: &mut Problems) -> Vec<Circuit> {
    let mut circuits = Vec::new();
    for mut table in items(root, "circuit", "[[circuit]]", problems) {
        let name = table.required_name("name", problems);
        let between = table.required_pair("between", problems).and_then(|[first, second]| {
            let first = known.sites.look_up(first, problems);
            let second = known.sites.look_up(second, problems);
            Some([first?, second?])
        });
        let operator = table.name("operator", problems);
        let operator = operator.and_then(|operator| known.operators.look_up(operator, problems));
        let capacity = table.rate("capacity", problems);
        let rtt = table.duration("rtt", problems).map(|rtt| rtt.value);
        let bottleneck = table.name("bottleneck", problems);
        let bottleneck = bottleneck.and_then(|bottleneck| known.bottlenecks.look_up(bottleneck, problems));
        table.finish(problems);
        if let Some(name) = &name {
            known.circuits.claim(name, problems);
        }
        if let (Some(name), Some(between)) = (name, between) {
            circuits.push(Circuit { name: name.value, between, operator, capacity, rtt, bottleneck });
        }
    }
    circuits
}

fn read_audiences(root: &mut Table, known: &KnownNames, problems: &mut Problems) -> Vec<Audience> {
    let mut names = Names::new("audience");
    let mut audiences = Vec::new();
    for mut table in items(root, "audience", "[[audience]]", problems) {
        let name = table.required_name("name", problems);
        let kind = table.required_choice("kind", AudienceKind::CHOICES, problems);
        let sites = table.names("sites", problems);
        let sites = known.site_names(sites, problems);
        let roles = table.texts("roles", problems);
        let choose = |role| table.choice_of("roles", &role, Role::CHOICES, problems);
        let roles = roles.into_iter().filter_map(choose).collect();
        let mails = table.texts("mails", problems);
        let mails = mails.into_iter().filter_map(|mail| checked_mail(mail, problems)).collect();
        table.finish(problems);
        if let Some(name) = &name {
            names.claim(name, problems);
        }
        if let (Some(name), Some(kind)) = (name, kind) {
            audiences.push(Audience { name: name.value, kind, sites, roles, mails });
        }
    }
    audiences
}

fn read_maintenance(root: &mut Table, known: &KnownNames, problems: &mut Problems) -> Vec<Maintenance> {
    let mut windows = Vec::new();
    for mut table in items(root, "maintenance", "[[maintenance]]", problems) {
        let scope = read_scope(&mut table, known, problems);
        let start = table.required_time("start", problems);
        let end = table.time("end", problems);
        let duration = table.duration("duration", problems);
        let every = table.duration("every", problems);
        let reason = table.text("reason", problems).map(|reason| reason.value);
        if table.has("end") == table.has("duration") {
            let given = if table.has("end") { "end and duration" } else { "no end" };
            let expected = "end = … or duration = …";
            problems.add(&table.span, Problem::Alternatives { table: table.name, given, expected });
        }
        let (name, span) = (table.name, table.span.clone());
        table.finish(problems);
        let (Some(scope), Some(start)) = (scope, start) else { continue };
        let length = match (end, duration) {
            (Some(end), _) => check_end(&start, &end, problems),
            (None, Some(duration)) => check_length(name, duration, problems),
            (None, None) => None,
        };
        let Some(length) = length else { continue };
        let every = every.map(|every| every.value);
        if let Some(every) = every.filter(|every| *every <= length) {
            let show = lfn_base::units::show_duration;
            problems.add(&span, Problem::RepeatsTooSoon { length: show(length), every: show(every) });
        }
        windows.push(Maintenance { scope, start: start.value, length, every, reason });
    }
    windows
}

fn check_end(start: &Located<Duration>, end: &Located<Duration>, problems: &mut Problems) -> Option<Duration> {
    let length = end.value.checked_sub(start.value).filter(|length| !length.is_zero());
    if length.is_none() {
        let show = lfn_base::date::rfc3339;
        problems.add(&end.span, Problem::EndBeforeStart { start: show(start.value), end: show(end.value) });
    }
    length
}

fn check_length(table: &'static str, length: Located<Duration>, problems: &mut Problems) -> Option<Duration> {
    if !length.value.is_zero() {
        return Some(length.value);
    }
    let range = "more than 0".to_owned();
    problems.add(&length.span, Problem::Range { table, key: "duration", value: "0".to_owned(), range });
    None
}

/// Reads exactly one of `site`, `circuit` and `pair`.
fn read_scope(table: &mut Table, known: &KnownNames, problems: &mut Problems) -> Option<MaintenanceScope> {
    let keys = ["site", "circuit", "pair"];
    let given = keys.into_iter().filter(|key| table.has(key)).count();
    if given != 1 {
        let given = if given == 0 { "no place" } else { "several places" };
        let expected = "one of site, circuit and pair";
        problems.add(&table.span, Problem::Alternatives { table: table.name, given, expected });
        return None;
    }
    if let Some(site) = table.name("site", problems) {
        return known.sites.look_up(site, problems).map(MaintenanceScope::Site);
    }
    if let Some(circuit) = table.name("circuit", problems) {
        return known.circuits.look_up(circuit, problems).map(MaintenanceScope::Circuit);
    }
    let pair = table.pair("pair", problems)?;
    known.member_pair(pair, problems).map(MaintenanceScope::Pair)
}

fn read_hub(mut table: Table, problems: &mut Problems) -> HubSettings {
    let address = read_address(&mut table, "address", problems).map(|address| address.value);
    let keep_detail = table.duration("keep-detail", problems).map(|keep| keep.value);
    table.finish(problems);
    HubSettings { address, keep_detail }
}
