//! A bucket of an S3-compatible store. A document's version is metadata of its object; writes name what they replace (`If-Match`)
//! or that nothing stands there (`If-None-Match: *`), which the store has to support.

use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ClientConfigKey, Error, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload,
    RetryConfig, UpdateVersion,
};
use waypost_store::{Result, StoreError};

use super::{Answer, Content, Objects, Settings, Stored};

/// `x-amz-meta-waypost-seq`: the run's seq.
const SEQ: &str = "waypost-seq";
/// `x-amz-meta-waypost-last`: nothing replaces it.
const LAST: &str = "waypost-last";

/// Whoever writes asks again by itself, and looks first whether somebody else was faster.
const RETRIES: usize = 1;
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Bucket {
    store: AmazonS3,
    prefix: Path,
    name: String,
}

impl Bucket {
    /// Endpoint, region, credentials and style of addresses are those of the usual variables (`AWS_ENDPOINT_URL`, `AWS_REGION`,
    /// `AWS_ACCESS_KEY_ID`, `AWS_VIRTUAL_HOSTED_STYLE_REQUEST` …) where the settings say nothing.
    pub fn open(settings: &Settings, bucket: &str, prefix: &str) -> std::result::Result<Bucket, String> {
        let mut builder = AmazonS3Builder::from_env();
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &settings.region {
            builder = builder.with_region(region);
        }
        if let Some(path_style) = settings.path_style {
            builder = builder.with_virtual_hosted_style_request(!path_style);
        }
        Bucket::build(builder, bucket, prefix)
    }

    /// The same with settings of one's own.
    pub fn build(
        builder: AmazonS3Builder,
        bucket: &str,
        prefix: &str,
    ) -> std::result::Result<Bucket, String> {
        // Somebody's program may have chosen its own already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retries = RetryConfig { max_retries: RETRIES, retry_timeout: TIMEOUT, ..RetryConfig::default() };
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        // Whoever names an endpoint without TLS means it.
        let is_plain = endpoint.is_some_and(|url| url.starts_with("http://"));
        let builder = if is_plain { builder.with_allow_http(true) } else { builder };
        let limit = |key| AmazonS3ConfigKey::Client(key);
        let builder = builder
            .with_config(limit(ClientConfigKey::Timeout), format!("{}s", TIMEOUT.as_secs()))
            .with_config(limit(ClientConfigKey::ConnectTimeout), format!("{}s", TIMEOUT.as_secs() / 2));
        let name = format!("s3://{bucket}/{prefix}");
        let unfit = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let prefix = Path::parse(prefix).map_err(|error| unfit(&error))?;
        let store = builder
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(retries)
            .build()
            .map_err(|error| unfit(&error))?;
        Ok(Bucket { store, prefix, name })
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').fold(self.prefix.clone(), Path::join)
    }

    async fn get(&self, key: &str) -> Result<Option<Stored>> {
        let found = match self.store.get_opts(&self.path(key), GetOptions::default()).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(|error| self.away(&error))?,
        };
        let tag = found.meta.e_tag.clone();
        let told = |name: &'static str| {
            let value = found.attributes.get(&Attribute::Metadata(name.into()));
            value.map(|value| value.as_ref().to_owned())
        };
        let (version, is_last) = (told(SEQ).and_then(|text| text.parse().ok()), told(LAST).is_some());
        let bytes = found.bytes().await.map_err(|error| self.away(&error))?.to_vec();
        let unfit = || {
            let message = format!("the object store {}: it gives no ETag, and writes need one", self.name);
            StoreError::Unusable(message)
        };
        Ok(Some(Stored {
            bytes,
            version: version.unwrap_or(0),
            is_last,
            tag: tag.ok_or_else(unfit)?,
            damage: None,
        }))
    }

    async fn put(&self, key: &str, new: &Content, was: Option<&Stored>) -> Result<bool> {
        let mode = match was {
            None => PutMode::Create,
            Some(was) => PutMode::Update(UpdateVersion { e_tag: Some(was.tag.clone()), version: None }),
        };
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, "application/json".into());
        attributes.insert(Attribute::Metadata(SEQ.into()), new.version.to_string().into());
        if new.is_last {
            attributes.insert(Attribute::Metadata(LAST.into()), "true".into());
        }
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        let payload = PutPayload::from(new.bytes.clone());
        match self.store.put_opts(&self.path(key), payload, options).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            // It was deleted meanwhile.
            Err(Error::NotFound { .. }) if was.is_some() => Ok(false),
            Err(error) => Err(self.away(&error)),
        }
    }

    fn away(&self, error: &Error) -> StoreError {
        StoreError::Unavailable(format!("the object store {}: {error}", self.name))
    }
}

impl Objects for Bucket {
    fn name(&self) -> &str {
        &self.name
    }

    fn read<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Stored>> {
        Box::pin(self.get(key))
    }

    fn write<'a>(&'a self, key: &'a str, new: &'a Content, was: Option<&'a Stored>) -> Answer<'a, bool> {
        Box::pin(self.put(key, new, was))
    }
}
