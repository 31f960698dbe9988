//! The addresses of the page.
//!
//! Every answer needs the token, except `/healthz`, which shows only that the server runs. There is no cookie, so a page of
//! another site cannot make a browser use a stored permission. For the same reason the `Host` header is not checked: a browser
//! sends the password to the origin where the user typed it, and a name that an attacker points to this address is another
//! origin.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, LOCATION, REFERRER_POLICY, VARY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use lfn_base::date;
use lfn_mesh::archive::ArchiveError;
use lfn_mesh::compare::DayLog;
use tokio::time::timeout;

use crate::html;
use crate::metrics::{MetricsInput, metrics_text};
use crate::options::{MeshView, PageOptions};
use crate::plans::Plans;
use crate::reader::{PairEntries, Reader};
use crate::request::{self, Format, PageToken};
use crate::text;
use crate::view::{DaysView, MatrixInput, MatrixView, Mesh, PairInput, PairView, PlanView, SiteView};

/// Days of the lines of a pair.
const DEFAULT_DAYS: u64 = 7;
const MAX_DAYS: u64 = 400;

/// Nothing is loaded from another origin, and no page runs an inline script.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"lfn mesh\", charset=\"UTF-8\"");
const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page without its sockets.
pub(crate) struct Site {
    token: PageToken,
    router: Router,
    answer_time: Duration,
}

/// Sources of the views.
struct Sources {
    mesh: Arc<dyn MeshView>,
    reader: Reader,
    plans: Plans,
}

impl Site {
    /// Creates the page of an archive and a mesh.
    pub fn new(options: &PageOptions, mesh: Arc<dyn MeshView>) -> Arc<Self> {
        let sources = Arc::new(Sources { mesh, reader: Reader::new(options.archive.clone()), plans: Plans::default() });
        let router = Router::new()
            .route("/", get(matrix))
            .route("/pair/{from}/{to}", get(pair))
            .route("/site/{name}", get(site))
            .route("/plan", get(plan))
            .route("/metrics", get(metrics))
            .route("/style.css", get(|| async { asset("text/css; charset=utf-8", include_str!("assets/style.css")) }))
            .route(
                "/script.js",
                get(|| async { asset("text/javascript; charset=utf-8", include_str!("assets/script.js")) }),
            )
            .route("/icon.svg", get(|| async { asset("image/svg+xml", include_str!("assets/icon.svg")) }))
            .route("/healthz", get(|| async { answer(StatusCode::OK, TEXT, "ok\n") }))
            .fallback(|asked: Asked| async move { missing(asked.format, "There is no such page.") })
            .with_state(sources);
        Arc::new(Site { token: PageToken::new(&options.token), router, answer_time: options.limits.answer_time })
    }

    /// Answers a request. Sets the flag if the request has the token.
    pub async fn answer(&self, request: hyper::Request<Incoming>, is_authenticated: &AtomicBool) -> Response {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let mut response = if !matches!(method, Method::GET | Method::HEAD) {
            let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        } else if self.token.permits(request.headers()) {
            is_authenticated.store(true, Ordering::Relaxed);
            self.route(request).await
        } else if uri.path() == "/healthz" {
            self.route(request).await
        } else {
            unauthorized(request::format(&uri, request.headers()))
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(VARY, HeaderValue::from_static("Accept, Authorization"));
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        response
    }

    async fn route(&self, request: hyper::Request<Incoming>) -> Response {
        let answered = TowerToHyperService::new(self.router.clone()).call(request);
        match timeout(self.answer_time, answered).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => match error {},
            Err(_) => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the answer took too long\n"),
        }
    }
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn asset(kind: &'static str, body: &'static str) -> Response {
    let mut response = answer(StatusCode::OK, kind, body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=300"));
    response
}

fn message(status: StatusCode, format: Format, title: &str, sentence: &str) -> Response {
    match format {
        Format::Html => answer(status, HTML, html::message_page(title, sentence)),
        Format::Text => answer(status, TEXT, crate::format::clean(format!("{title}: {sentence}\n"))),
    }
}

fn unauthorized(format: Format) -> Response {
    let sentence = "This page needs the token of the hub: as the password of any user, or as a bearer token.";
    let mut response = message(StatusCode::UNAUTHORIZED, format, "Token needed", sentence);
    response.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
    response
}

fn missing(format: Format, sentence: &str) -> Response {
    message(StatusCode::NOT_FOUND, format, "Not found", sentence)
}

fn moved(format: Format, address: &str) -> Response {
    let sentence = format!("The hosts of these sites have the page {address}.");
    let mut response = message(StatusCode::TEMPORARY_REDIRECT, format, "Page of a pair", &sentence);
    // An address is percent-encoded, so it is a valid header.
    if let Ok(location) = HeaderValue::from_str(address) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Returns the days of the lines. The error is a sentence for the reader.
fn days_of(uri: &Uri) -> Result<u64, String> {
    let Some(text) = request::parameter(uri, "days") else { return Ok(DEFAULT_DAYS) };
    let days = text.parse().ok().filter(|days| (1..=MAX_DAYS).contains(days));
    days.ok_or_else(|| format!("days={} is not a number from 1 to {MAX_DAYS}.", shown(&text)))
}

/// Returns the first moments of the two days to compare, if the address has them. An empty field of the form is no day.
fn compared_days(uri: &Uri) -> Result<Option<(Duration, Duration)>, String> {
    let date = |name| match request::parameter(uri, name).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => match date::parse(&text) {
            Some(time) => Ok(Some(DayLog::day_of(time))),
            None => Err(format!("{name}={} is not a date such as 2026-11-28.", shown(&text))),
        },
    };
    match (date("day")?, date("against")?) {
        (Some(day), Some(against)) if day == against => Err("day and against are the same day.".to_owned()),
        (Some(day), Some(against)) => Ok(Some((day, against))),
        (None, None) => Ok(None),
        _ => Err("A comparison needs two days: day and against.".to_owned()),
    }
}

/// Returns the first letters of a value for a message.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The query and the format of a request.
struct Asked {
    uri: Uri,
    format: Format,
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Asked { uri: parts.uri.clone(), format: request::format(&parts.uri, &parts.headers) })
    }
}

/// A view in the format of the request.
enum Made {
    Page(String),
    Missing(String),
    /// The view has another address.
    Moved(String),
}

/// Makes a view on a thread for blocking work, and answers with it.
async fn make(
    sources: Arc<Sources>,
    format: Format,
    make: impl FnOnce(&Sources, Format) -> Result<Made, ArchiveError> + Send + 'static,
) -> Response {
    let kind = if format == Format::Html { HTML } else { TEXT };
    match tokio::task::spawn_blocking(move || make(&sources, format)).await {
        Ok(Ok(Made::Page(page))) => answer(StatusCode::OK, kind, page),
        Ok(Ok(Made::Missing(sentence))) => missing(format, &sentence),
        Ok(Ok(Made::Moved(address))) => moved(format, &address),
        Ok(Err(error)) => {
            message(StatusCode::INTERNAL_SERVER_ERROR, format, "The archive cannot be read", &format!("{error}."))
        }
        Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, format, "Error", "The page could not be made."),
    }
}

async fn matrix(State(sources): State<Arc<Sources>>, asked: Asked) -> Response {
    let query = request::parameter(&asked.uri, "q");
    make(sources, asked.format, move |sources, format| {
        let (latest, hosts) = sources.reader.latest()?;
        let mesh = Mesh::new(&sources.mesh.sites(), &hosts);
        let view = MatrixView::new(MatrixInput { mesh: &mesh, latest: &latest, query, now: sources.mesh.now() });
        Ok(Made::Page(match format {
            Format::Html => html::matrix_page(&view),
            Format::Text => text::matrix_text(&view),
        }))
    })
    .await
}

async fn pair(State(sources): State<Arc<Sources>>, Path((from, to)): Path<(String, String)>, asked: Asked) -> Response {
    let (days, compared) = match days_of(&asked.uri).and_then(|days| Ok((days, compared_days(&asked.uri)?))) {
        Ok(values) => values,
        Err(sentence) => return message(StatusCode::BAD_REQUEST, asked.format, "Wrong address", &sentence),
    };
    let query = asked.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    make(sources, asked.format, move |sources, format| {
        let (now, hosts) = (sources.mesh.now(), sources.reader.hosts()?);
        let mesh = Mesh::new(&sources.mesh.sites(), &hosts);
        let host = |name| mesh.host_of(name, &hosts).map(str::to_owned);
        let [Some(from_host), Some(to_host)] = [host(&from), host(&to)] else {
            let unknown = if host(&from).is_none() { &from } else { &to };
            return Ok(Made::Missing(format!("There is no host {unknown}.")));
        };
        if [&from_host, &to_host] != [&from, &to] {
            return Ok(Made::Moved(html::pair_link(&from_host, &to_host) + &query));
        }
        let since = now.saturating_sub(Duration::from_secs(days * 86_400));
        let PairEntries { loads, latencies, change, newest, paths, reverse_paths } =
            sources.reader.pair(&from, &to, since)?;
        let days_compared = match compared {
            Some((day, against)) => {
                let log =
                    |day| Ok::<_, ArchiveError>(DayLog::of(&sources.reader.day(&from, &to, day)?, &from, &to, day));
                Some(DaysView::new(&log(day)?, &log(against)?))
            }
            None => None,
        };
        let view = PairView::new(PairInput {
            mesh: &mesh,
            from: &from,
            to: &to,
            days,
            now,
            loads,
            latencies,
            change,
            newest,
            paths,
            reverse_paths,
            days_compared,
        });
        Ok(Made::Page(match format {
            Format::Html => html::pair_page(&view),
            Format::Text => text::pair_text(&view),
        }))
    })
    .await
}

async fn site(State(sources): State<Arc<Sources>>, Path(name): Path<String>, asked: Asked) -> Response {
    make(sources, asked.format, move |sources, format| {
        let (latest, hosts) = sources.reader.latest()?;
        let sites = sources.mesh.sites();
        let mesh = Mesh::new(&sites, &hosts);
        let Some(view) = SiteView::new(&sites, &mesh, &name, &latest, sources.mesh.now()) else {
            return Ok(Made::Missing(format!("There is no site {name}.")));
        };
        Ok(Made::Page(match format {
            Format::Html => html::site_page(&view),
            Format::Text => text::site_text(&view),
        }))
    })
    .await
}

async fn plan(State(sources): State<Arc<Sources>>, asked: Asked) -> Response {
    make(sources, asked.format, move |sources, format| {
        let (sites, now) = (sources.mesh.sites(), sources.mesh.now());
        let today = sources.plans.of_day(&sites, now);
        let tomorrow = PlanView::needs_tomorrow(&today, now)
            .then(|| sources.plans.of_day(&sites, now + Duration::from_secs(86_400)));
        let view = PlanView::new(&sites, &today, tomorrow.as_deref(), sources.mesh.valid_from(), now);
        Ok(Made::Page(match format {
            Format::Html => html::plan_page(&view),
            Format::Text => text::plan_text(&view),
        }))
    })
    .await
}

async fn metrics(State(sources): State<Arc<Sources>>) -> Response {
    let read = tokio::task::spawn_blocking(move || {
        let (latest, counts) = sources.reader.metrics()?;
        Ok::<_, ArchiveError>(metrics_text(&MetricsInput {
            latest: &latest,
            entries: counts.entries,
            bytes: counts.bytes,
        }))
    });
    match read.await {
        Ok(Ok(text)) => answer(StatusCode::OK, METRICS, text),
        Ok(Err(error)) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, crate::format::clean(format!("{error}\n"))),
        Err(_) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "no metrics\n"),
    }
}
