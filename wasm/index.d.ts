/** Where the module comes from: its bytes, a response that carries them, or their address. */
export type Source = ArrayBuffer | Uint8Array | Response | Promise<Response> | URL;

/**
 * Loads the module; the other functions work after it resolved. Without a source the module beside this file is
 * fetched, or read from disk in Node.
 */
export function init(source?: Source): Promise<void>;

export type FrameType =
  | "hello"
  | "welcome"
  | "heartbeat"
  | "heartbeat_ack"
  | "retention"
  | "retention_ack"
  | "request"
  | "response";

export interface FrameVerdict {
  /** `invalid_frame` closes the connection; `invalid_request` is answered `invalid`. */
  grade: "ok" | "invalid_frame" | "invalid_request";
  /** The frame's type, when it could be read. */
  type: FrameType | null;
  /** The rule that was broken and where; never content of the frame. */
  reason: string | null;
}

/** Judges one message as its receiver does. */
export function decodeFrame(message: Uint8Array): FrameVerdict;

export type Provider = "docker" | "microsandbox" | "e2b";

export interface Refused {
  ok: false;
  /** What is wrong, for people. */
  reason: string;
  /** The member that is wrong, as error answers of Core name it. */
  param?: string;
  /** The smallest size. */
  min?: number;
  /** The largest size, where there is one. */
  max?: number;
}

/** Checks `{"resources":…,"runtime":…}`. */
export function validateSpecification(provider: Provider, json: string): { ok: true } | Refused;

export interface Digest {
  /** SHA-256 of the canonical text, 64 lower-case hexadecimal digits. */
  digest: string;
  /** The text that was hashed. */
  canonical: string;
}

/** Digest of a valid specification. */
export function specificationDigest(provider: Provider, json: string): Digest | Refused;
