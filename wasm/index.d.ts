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

/** A text for a shell of the POSIX family, or the value that none is made of. */
export type Command = { ok: true; command: string } | { ok: false; reason: string; param?: string };

export interface Uninstall {
  /** SHA-256 of the installer: `node_installer_sha256` of `/console/config`. */
  installer_sha256: string;
  /** Origin that the installer comes from. */
  source_url: string;
  installation_id: string;
}

export interface Install extends Uninstall {
  /** Core's public URL. */
  core_url: string;
  /** Enrollment token; the command hands it over on standard input alone. */
  token: string;
}

/** What an operator types on a host to make it a node. It holds the token. */
export function installCommand(wanted: Install): Command;

/** What makes a node a plain host again. */
export function uninstallCommand(wanted: Uninstall): Command;

/** What shows the log of the node of an installation, whatever its id holds. */
export function logCommand(installationId: string): Command;
