//! The page over HTTP: permission, headers, formats, states, escaping, limits and sizes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use data_encoding::BASE64;
use lfn_mesh::entry::{Entry, EntryFinding, EntryKind, Outcome};
use lfn_web::{CertificateFiles, Limits, PageOptions, PageServer, WebError};

use support::*;

const POLICY: &str = "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns the cell of the matrix that links to a pair, with its class.
fn cell<'a>(body: &'a str, from: &str, to: &str) -> &'a str {
    let link = format!("href=\"/pair/{from}/{to}\"");
    let place = body.find(&link).unwrap_or_else(|| panic!("no {link}"));
    let start = body[..place].rfind("<td").unwrap();
    &body[start..start + body[start..].find("</td>").unwrap()]
}

#[test]
fn every_address_needs_the_token() {
    let page = start(&[]);
    for address in ["/", "/metrics", "/style.css", "/script.js", "/icon.svg", "/pair/a/b", "/site/NCAR", "/none"] {
        for header in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic Og==\r\n", "Cookie: token=x\r\n"] {
            let answer = page.get(address, header);
            assert_eq!(answer.status, 401, "{address}");
            assert!(answer.header.contains("www-authenticate: basic realm=\"lfn mesh\""), "{}", answer.header);
            assert!(!answer.body.contains("vBNS"));
        }
    }
    let basic = format!("Authorization: Basic {}\r\n", BASE64.encode(format!("x:{TOKEN}").as_bytes()));
    assert_eq!(page.get("/", &basic).status, 200);
    assert_eq!(page.get("/healthz", "").body, "ok\n");
}

#[test]
fn every_answer_has_the_security_headers() {
    let page = start(&[]);
    let answers = ["/", "/metrics", "/style.css", "/none", "/site/none"].map(|address| page.html(address));
    for answer in answers.into_iter().chain([page.get("/", ""), page.get("/healthz", "")]) {
        for line in [POLICY, "x-content-type-options: nosniff", "referrer-policy: no-referrer", "cache-control: "] {
            assert!(answer.header.contains(line), "{line}: {}", answer.header);
        }
        assert!(!answer.header.contains("set-cookie") && !answer.header.contains("access-control"));
    }
}

#[test]
fn only_get_and_head_are_allowed() {
    let page = start(&[]);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 0\r\n\r\n"
        );
        let answer = send(page.server.address(), request.as_bytes());
        assert!(answer.status == 405 && answer.header.contains("allow: get, head"), "{method}: {answer:?}");
    }
    let head = format!("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let answer = send(page.server.address(), head.as_bytes());
    assert!(answer.status == 200 && answer.body.is_empty() && answer.header.contains("content-length: "), "{answer:?}");
}

#[test]
fn browsers_get_html_and_curl_gets_text() {
    let page = start(&vbns_week());
    for address in ["/", "/pair/aztec/c90-psc", "/site/NCAR"] {
        let (html, text) = (page.html(address), page.text(address));
        assert!(html.header.contains("text/html") && html.body.starts_with("<!DOCTYPE html>"), "{address}");
        assert!(text.header.contains("text/plain") && !text.body.contains('<'), "{address}: {}", text.body);
        for figure in ["9.85 Mb/s", "c90-psc"] {
            assert!(html.body.contains(figure) && text.body.contains(figure), "{address}: {figure}");
        }
        assert!(html.header.contains("vary: accept"));
    }
    assert!(page.text("/?format=html").body.starts_with("<!DOCTYPE html>"));
}

#[test]
fn matrix_shows_each_state_with_its_letter() {
    let body = page_body(&start(&vbns_week()), "/");
    for (from, to, class, letter) in [
        ("aztec", "c90-sdsc", "good", "G"),
        ("aztec", "c90-psc", "limited", "L"),
        ("origin", "c90-sdsc", "failed", "F"),
        ("origin", "aztec", "unknown", "?"),
        ("sp2", "aztec", "stale", "S"),
    ] {
        let cell = cell(&body, from, to);
        let start = format!("<td class=\"{class}\">");
        assert!(cell.starts_with(&start) && cell.contains(&format!("<b>{letter}</b>")), "{from} {to}: {cell}");
    }
    assert_eq!(body.matches("<td class=\"empty\">").count(), 2, "two hosts of one site do not measure each other");
}

fn page_body(page: &Page, address: &str) -> String {
    let answer = page.html(address);
    assert_eq!(answer.status, 200, "{address}: {}", answer.body);
    answer.body
}

#[test]
fn page_of_a_pending_plan_has_its_time() {
    let valid_from = now() + Duration::from_secs(120);
    let pending = Arc::new(FixedMesh { valid_from, sites: mesh(SITES).sites.clone() });
    let (page, pending) = (start(&[]), start_mesh(pending, &[], Limits::default()));
    let text = |page: &Page| page.text("/plan").body;
    assert!(text(&pending).contains("the agents follow this plan from 2026-11-20 06:42:00 on"), "{}", text(&pending));
    assert!(page_body(&pending, "/plan").contains("The agents follow this plan from 2026-11-20 06:42:00 UTC on."));
    assert!(!text(&page).contains("follow this plan"));
}

#[test]
fn stale_result_is_never_good() {
    let interval = 6 * 3600;
    let fresh = load("aztec", "sp2", ago(2 * interval), Outcome::Good);
    let stale = load("sp2", "aztec", ago(2 * interval + 1), Outcome::Good);
    let unplanned = Entry { test: String::new(), ..load("origin", "aztec", ago(2 * 86_400 + 1), Outcome::Good) };
    let page = start(&[fresh, stale, unplanned]);
    let body = page_body(&page, "/");
    assert!(cell(&body, "aztec", "sp2").starts_with("<td class=\"good\">"));
    assert!(cell(&body, "sp2", "aztec").starts_with("<td class=\"stale\">"));
    assert!(cell(&body, "origin", "aztec").starts_with("<td class=\"stale\">"));
    assert!(page_body(&page, "/pair/sp2/aztec").contains("<span class=\"state stale\">"));
}

#[test]
fn texts_of_other_hosts_are_escaped() {
    const EVIL: &str = "<script>alert(1)</script>\u{1b}[2J\u{202e}\"'&\nG forged line";
    let entry = Entry {
        verdict: EVIL.to_owned(),
        findings: vec![EntryFinding {
            name: EVIL.to_owned(),
            summary: EVIL.to_owned(),
            remedy: EVIL.to_owned(),
            host: Some(EVIL.to_owned()),
        }],
        conditions: [("<b>kernel".to_owned(), "<img src=x>".to_owned())].into(),
        ..load("<img src=x onerror=1>", "a\u{1b}b", ago(60), Outcome::Limited)
    };
    let failed =
        Entry { error: Some(EVIL.to_owned()), ..load("a\u{1b}b", "<img src=x onerror=1>", ago(60), Outcome::Failed) };
    let path = Entry {
        hops: vec!["<script>hop".to_owned()],
        ..Entry::new(EntryKind::Path, "<img src=x onerror=1>", "a\u{1b}b", ago(60))
    };
    let page = start(&[entry, failed, path]);
    let pair = "/pair/%3Cimg%20src%3Dx%20onerror%3D1%3E/a%1Bb";
    let site = "/site/not%20in%20the%20sites%20file";
    for address in
        ["/", pair, site, "/?q=%3Cscript%3E", "/pair/%3Cscript%3E/x%1B", "/site/%3Cscript%3E", "/%3Cscript%3E"]
    {
        let answers = [page.html(address), page.text(address)];
        assert!(!answers[0].body.contains("<script>") && !answers[0].body.contains("<img"), "{address}");
        for answer in answers {
            let unsafe_character = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!answer.body.contains(unsafe_character), "{address}: {:?}", answer.body);
            assert!(!answer.body.contains("\nG forged line") || answer.header.contains("text/html"), "{}", answer.body);
        }
    }
    assert!(page_body(&page, pair).contains("&lt;script&gt;alert(1)"));
    assert_eq!(page.html("/pair/%3Cscript%3E/aztec").status, 404);
}

#[test]
fn pair_page_explains_the_newest_load() {
    let page = start(&vbns_week());
    let body = page_body(&page, "/pair/aztec/c90-psc?days=7");
    for text in [
        "limited by the receive window",
        "sysctl -w net.ipv4.tcp_window_scaling=1",
        "The test changed at ",
        "receiver.window_scale",
        "<strong>new</strong>",
        "before: cs-atm0-0-4.den.vbns.net",
        "href=\"/pair/c90-psc/aztec\"",
        "predicted, ±10 %",
        "under own load",
        "during maintenance",
        "1 gap.",
    ] {
        assert!(body.contains(text), "{text}");
    }
    let text = page.text("/pair/aztec/c90-psc").body;
    assert!(text.contains("receiver.window_scale: 7 before, absent after"), "{text}");
}

#[test]
fn form_offers_the_two_newest_days_with_loads() {
    let days = [400, 399, 399, 7].map(|days| load("sp2", "aztec", ago(days * 86_400), Outcome::Good));
    let page = start(&days);
    let offered = |pair: &str, day: &str| page_body(&page, pair).contains(&format!("type=\"date\" value=\"{day}\""));
    assert!(offered("/pair/sp2/aztec", "2025-10-17") && offered("/pair/sp2/aztec", "2026-11-13"));
    // Without two days, the form offers yesterday and today.
    assert!(offered("/pair/aztec/sp2", "2026-11-19") && offered("/pair/aztec/sp2", "2026-11-20"));
}

#[test]
fn two_days_are_compared_on_request() {
    let page = start(&vbns_week());
    let address = "/pair/aztec/c90-psc?day=2026-11-18&against=2026-11-20";
    let (body, text) = (page_body(&page, address), page.text(address).body);
    for word in ["Median goodput (range)", "receiver.window_scale", "2026-11-18", "2026-11-20"] {
        assert!(body.contains(word) && text.contains(word), "{word}: {text}");
    }
}

#[test]
fn wrong_values_in_an_address_are_refused() {
    let page = start(&vbns_week());
    for (query, reason) in [
        ("day=tomorrow&against=2026-11-20", "day=tomorrow is not a date"),
        ("day=2026-11-20", "A comparison needs two days"),
        ("day=2026-11-20&against=2026-11-20", "the same day"),
        ("days=abc", "days=abc is not a number from 1 to 400."),
        ("days=0", "days=0 is not"),
        ("days=500", "days=500 is not"),
    ] {
        let address = format!("/pair/aztec/c90-psc?{query}");
        for answer in [page.html(&address), page.text(&address)] {
            assert!(answer.status == 400 && answer.body.contains(reason), "{address}: {answer:?}");
        }
    }
    assert_eq!(page.text("/pair/aztec/c90-psc?day=&against=").status, 200);
}

#[test]
fn sites_of_a_pair_lead_to_their_hosts() {
    let page = start(&vbns_week());
    let answer = page.text("/pair/NCAR/c90-psc?days=30");
    assert!(answer.status == 307 && answer.header.contains("location: /pair/aztec/c90-psc?days=30"), "{answer:?}");
    assert_eq!(page.text("/pair/NCAR/nowhere").status, 404);
}

#[test]
fn headline_names_the_failure_of_a_pair() {
    let failed = Entry {
        outcome: Outcome::Failed,
        error: Some("no packet was answered".to_owned()),
        ..latency("aztec", "sp2", ago(60))
    };
    let page = start(&[load("aztec", "sp2", ago(600), Outcome::Good), failed]);
    let headline = "failed: the latency measurement failed: no packet was answered";
    let text = page.text("/pair/aztec/sp2").body;
    assert!(text.lines().any(|line| line == format!("F {headline}")), "{text}");
    assert!(page_body(&page, "/pair/aztec/sp2").contains(": the latency measurement failed: no packet was answered"));
}

#[test]
fn unknown_pair_and_site_are_not_found() {
    let page = start(&vbns_week());
    for (address, text) in [
        ("/pair/nowhere/aztec", "There is no host nowhere."),
        ("/site/nowhere", "There is no site nowhere."),
        ("/pair/aztec", "There is no such page."),
    ] {
        for answer in [page.html(address), page.text(address)] {
            assert!(answer.status == 404 && answer.body.contains(text), "{answer:?}");
        }
    }
    let body = page_body(&page, "/pair/aztec/winterpark");
    assert!(body.contains("The archive has no entry of this pair."), "{body}");
}

#[test]
fn plan_shows_the_next_loads_and_those_that_do_not_fit() {
    let sites = format!(
        "{SITES}[[test]]\nname = \"all-day\"\nkind = \"load\"\ngroup = \"west\"\ninterval = \"1h\"\ntime = \"59min\"\n\
         [[group]]\nname = \"west\"\nkind = \"list\"\npairs = [[\"NCAR\", \"SDSC\"]]\n"
    );
    let page = start_with(&sites, &[], Limits::default());
    let (body, text) = (page_body(&page, "/plan"), page.text("/plan").body);
    for word in ["goodput", "all-day", "c90-sdsc", "2026-11-20 "] {
        assert!(body.contains(word) && text.contains(word), "{word}: {text}");
    }
    assert!(body.contains("Next loads") && body.contains("Loads that do not fit"), "{text}");
}

#[test]
fn search_lists_the_pairs_of_a_host_or_site() {
    let page = start(&vbns_week());
    let body = page_body(&page, "/?q=sdsc");
    let found = body.split("<caption><span>Pairs like").nth(1).unwrap().split("</table>").next().unwrap();
    assert_eq!(found.matches("<th scope=\"row\">").count(), 10);
    assert!(page_body(&page, "/?q=nothing").contains("No pair has a host or a site like “nothing”."));
}

#[test]
fn large_mesh_has_no_table_of_all_hosts() {
    use std::fmt::Write as _;
    let mut sites = "name = \"large\"\n".to_owned();
    for site in 0..1000 {
        write!(sites, "[[site]]\nname = \"s{site}\"\naddress = \"s{site}.example\"\n").unwrap();
    }
    let pairs = (0..1000).map(|host| {
        let outcome = if host == 77 { Outcome::Failed } else { Outcome::Good };
        Entry { test: String::new(), ..load(&format!("s{host}"), &format!("s{}", (host + 1) % 1000), ago(60), outcome) }
    });
    let page = start_with(&sites, &pairs.collect::<Vec<_>>(), Limits::default());
    let body = page_body(&page, "/");
    assert!(body.len() < 100_000, "{} bytes", body.len());
    let first = body.split("Pairs, worst first</span></caption>").nth(1).unwrap().split("<tbody>").nth(1).unwrap();
    assert!(first.starts_with("<tr><th scope=\"row\"><a href=\"/pair/s77/s78\">"), "{}", &first[..200]);
    assert!(body.contains("960 more sites are not listed.") && body.contains("960 more pairs are not listed."));
}

#[test]
fn page_of_90_days_keeps_its_budget_of_bytes() {
    let entries: Vec<Entry> = (0..90 * 96)
        .flat_map(|place| {
            let mut entry = load("aztec", "sp2", ago(place * 900 + 30), Outcome::Good);
            entry.goodput = entry.goodput.map(|rate| lfn_base::units::BitRate((rate.0 as f64 * noise(place)) as u64));
            let mut packets = latency("aztec", "sp2", ago(place * 900 + 60));
            packets.rtt = packets.rtt.map(|rtt| rtt.mul_f64(1.0 + noise(place)));
            packets.base_rtt = packets.base_rtt.map(|rtt| rtt.mul_f64(1.0 + noise(place + 1) / 2.0));
            [entry, packets]
        })
        .collect();
    let page = start(&entries);
    let body = page_body(&page, "/pair/aztec/sp2?days=90");
    assert!(body.contains("8640 measurements") && body.len() < 120_000, "{} bytes", body.len());
}

#[test]
fn metrics_have_the_time_of_each_entry() {
    let page = start(&vbns_week());
    let answer = page.get("/metrics", &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert!(answer.header.contains("content-type: text/plain; version=0.0.4"), "{}", answer.header);
    for line in [
        "lfn_mesh_goodput_bits_per_second{from=\"aztec\",to=\"c90-psc\"} 9850000",
        "lfn_mesh_outcome{from=\"origin\",to=\"c90-sdsc\",outcome=\"failed\"} 1",
        "# TYPE lfn_mesh_archive_bytes gauge",
    ] {
        assert!(answer.body.lines().any(|other| other == line), "{line}\n{}", answer.body);
    }
    assert!(answer.body.contains("lfn_mesh_last_entry_timestamp_seconds{from=\"sp2\",to=\"aztec\",kind=\"load\"} 17"));
}

#[test]
fn slow_client_blocks_no_other() {
    let limits = Limits { header_time: Duration::from_millis(300), ..Limits::default() };
    let page = start_with(SITES, &[], limits);
    let mut slow = TcpStream::connect(page.server.address()).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
    assert_eq!(page.html("/").status, 200);
    let mut rest = Vec::new();
    slow.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The server ends the connection, with or without an answer.
    let _ = slow.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
}

#[test]
fn silent_connections_do_not_lock_readers_out() {
    let limits = Limits { connections: 4, ..Limits::default() };
    let page = start_with(SITES, &[], limits);
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(page.server.address()).unwrap()).collect();
    assert_eq!(page.html("/").status, 200);
    drop(silent);
}

#[test]
fn too_many_readers_are_refused() {
    let page = start_with(SITES, &[], Limits { connections: 2, ..Limits::default() });
    let request = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let readers = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(page.server.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut first = [0; 64];
        assert!(stream.read(&mut first).unwrap() > 0);
        stream
    });
    let mut refused = TcpStream::connect(page.server.address()).unwrap();
    let answer = read_answer(&mut refused);
    assert!(answer.status == 503 && answer.header.contains("retry-after"), "{answer:?}");
    drop(readers);
    for attempt in 0.. {
        match page.html("/").status {
            200 => break,
            status => assert!(status == 503 && attempt < 500, "{status}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn large_header_is_refused() {
    let page = start(&[]);
    let answer = page.get("/", &format!("X-Large: {}\r\n", "x".repeat(20_000)));
    assert!((400..500).contains(&answer.status), "{answer:?}");
}

#[test]
fn addresses_of_other_hosts_need_encryption() {
    let directory = tempfile::tempdir().unwrap();
    let open = PageOptions { address: "0.0.0.0:0".parse().unwrap(), ..options(&directory.path().join("a.db")) };
    let error = PageServer::bind(open.clone(), mesh(SITES)).unwrap_err();
    assert!(matches!(error, WebError::Unencrypted(_)) && error.hint().unwrap().contains("ssh -L"));
    PageServer::bind(PageOptions { insecure: true, ..open.clone() }, mesh(SITES)).unwrap();
    let short = PageOptions { token: "short".to_owned(), ..options(&directory.path().join("a.db")) };
    assert!(matches!(PageServer::bind(short, mesh(SITES)), Err(WebError::ShortToken(5))));
}

#[test]
fn missing_archive_is_an_error_of_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let server = PageServer::bind(options(&directory.path().join("none.db")), mesh(SITES)).unwrap();
    let page = Page { server, directory };
    let answer = page.html("/");
    assert!(answer.status == 500 && answer.body.contains("there is no archive"), "{answer:?}");
}

#[test]
fn certificate_makes_the_page_https() {
    let directory = tempfile::tempdir().unwrap();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = CertificateFiles { chain: directory.path().join("chain.pem"), key: directory.path().join("key.pem") };
    std::fs::write(&files.chain, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    let archive = directory.path().join("archive.db");
    drop(lfn_mesh::archive::Archive::open(&archive).unwrap());
    let with_tls = PageOptions { certificate: Some(files.clone()), ..options(&archive) };
    let server = PageServer::bind(with_tls, mesh(SITES)).unwrap();
    assert!(server.url().starts_with("https://"));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = rustls::ClientConnection::new(config.into(), "localhost".try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut stream = rustls::StreamOwned::new(client, stream);
    let request = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).status, 200);
    std::fs::write(&files.key, "no key").unwrap();
    let damaged = PageOptions { certificate: Some(files), ..options(&archive) };
    let error = PageServer::bind(damaged, mesh(SITES)).unwrap_err();
    assert!(matches!(error, WebError::Certificate { kind: "private key", .. }), "{error}");
}

#[test]
fn dropped_server_closes_its_port() {
    let page = start(&[]);
    let address = page.server.address();
    drop(page);
    assert!(TcpStream::connect(address).is_err());
}
